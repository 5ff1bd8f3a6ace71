// MatMulNBits (com.microsoft): Y = A * ((B - zero) * scale)^T + bias.
//
//   A [..., K]   B [N, blocks, block_size*bits/8], blocks = ceil(K / block_size), first code low,
//   the last block stored whole   scales [N, blocks] or flat   zero points packed
//   [N, ceil(blocks*bits/8)] or as floats [N, blocks], or flat; 2^(bits-1) where there are none
//   bias [N]
//
// accuracy_level 4 rounds A to int8 under one scale per block, but only when B is an initializer
// and the zero points are codes.
#include "formats/ort_int8.h"
#include "onnx_ops/operators.h"
#include "quant/code_bits.h"

namespace lockstep {
namespace {

enum Slot : uint8_t { kA, kB, kScales, kZeros, kIndex, kBias };

struct Sizes {
  int64_t n, k, block, blocks;
  int bits;
};

Sizes SizesOf(const OpCall& call) {
  Sizes s{.n = IntOf(call, "N", 0),
          .k = IntOf(call, "K", 0),
          .block = IntOf(call, "block_size", 0),
          .blocks = 0,
          .bits = static_cast<int>(IntOf(call, "bits", 4))};
  if (s.block > 0) s.blocks = CeilDiv(s.k, s.block);
  return s;
}

// Constant operands are checked when the model loads (prepacking), others at the first run.
Refusal CheckShapes(const OpCall& call, size_t slot, std::string_view name, const Shape& expected,
                    bool flat_too) {
  const OpTensor* tensor = In(call, slot);
  if (tensor == nullptr || tensor->shape == expected ||
      (flat_too && tensor->shape == Shape{ElementsOf(expected)}))
    return {};
  const auto text =
      fmt::format("{} has the shape {}, expected {}{}; write it so", name, ShapeText(tensor->shape),
                  ShapeText(expected), flat_too ? " (or flat)" : "");
  return tensor->constant ? LoadFails(call, "{}", text) : BadArgument(call, "{}", text);
}

bool Rounds(const OpCall& call, const Sizes& s) {
  const OpTensor* zeros = In(call, kZeros);
  return MatMulNBitsRoundsInput(
      {.bits = s.bits,
       .block = s.block,
       .columns = s.k,
       .accuracy_level = IntOf(call, "accuracy_level", 0),
       .constant = In(call, kB)->constant,
       .float_zeros = zeros != nullptr && zeros->type != OnnxType::kUInt8});
}

}  // namespace

Refusal CheckMatMulNBits(const OpCall& call) {
  LS_REFUSE(NoBFloat16(call));
  for (const std::string_view name : {"K", "N", "block_size"})
    if (!HasAttribute(call, name))
      return LoadFails(call, "attribute {} is missing; write it", name);
  if (const int64_t bits = IntOf(call, "bits", 4); bits != 2 && bits != 4 && bits != 8)
    return LoadFails(call, "bits is {}, but the CPU runs 2, 4 and 8; choose one", bits);
  const Sizes s = SizesOf(call);
  if (!IsBlockSize(s.block))
    return LoadFails(call, "block_size is {}, expected a power of two of at least 16; choose one",
                     s.block);
  constexpr int64_t kMax = int64_t{1} << 40;
  if (s.n < 1 || s.k < 1 || s.n > kMax || s.k > kMax || s.block > kMax)
    return LoadFails(call, "N is {}, K is {} and block_size {}; expected sizes of a matrix", s.n,
                     s.k, s.block);
  if (s.bits == 2 && s.block > 256)
    return LoadFails(call, "block_size is {} with 2 bits, expected at most 256; choose one",
                     s.block);
  const OpTensor* zeros = In(call, kZeros);
  const bool float_zeros = zeros != nullptr && zeros->type != OnnxType::kUInt8;
  if (float_zeros && s.bits == 8)
    return LoadFails(call, "zero_points is {} with 8 bits; write them as uint8",
                     OnnxTypeName(zeros->type));
  if (In(call, kB)->type != OnnxType::kUInt8)
    return NotCovered(call, "B is {}, expected uint8", OnnxTypeName(In(call, kB)->type));
  if (In(call, kIndex) != nullptr)
    return NotCovered(call, "g_idx is given; order the columns instead");
  if (IntOf(call, "weight_prepacked", 0) != 0)
    return NotCovered(call, "weight_prepacked is {}, a layout of CUDA's; write raw weights and 0",
                      IntOf(call, "weight_prepacked", 0));
  if (s.block > 256 && Rounds(call, s))
    return NotCovered(call,
                      "blocks of {} round activations in a way of their own with accuracy_level "
                      "4; use blocks of at most 256",
                      s.block);
  const Shape& a = In(call, kA)->shape;
  if (a.empty() || a.back() != s.k)
    return LoadFails(call, "A has the shape {}, but K is {}; its last dimension must be that",
                     ShapeText(a), s.k);
  LS_REFUSE(CheckShapes(call, kB, "B", {s.n, s.blocks, PackedBytes(s.block, s.bits)}, false));
  LS_REFUSE(CheckShapes(call, kScales, "scales", {s.n, s.blocks}, true));
  LS_REFUSE(CheckShapes(call, kZeros, "zero_points",
                        {s.n, float_zeros ? s.blocks : PackedBytes(s.blocks, s.bits)}, true));
  if (const OpTensor* bias = In(call, kBias); bias != nullptr && bias->shape != Shape{s.n})
    return LoadFails(call, "bias has the shape {}, expected [{}]; write it so",
                     ShapeText(bias->shape), s.n);
  return {};
}

Result<OpResults> RunMatMulNBits(const OpCall& call, const OpOptions& options) {
  const Sizes s = SizesOf(call);
  const OpTensor* a = In(call, kA);
  const OpTensor* zeros = In(call, kZeros);
  std::vector<float> x = FloatsOf(*a);
  const auto k = static_cast<size_t>(s.k);
  const size_t rows = x.size() / k;
  const bool float_zeros = zeros != nullptr && zeros->type != OnnxType::kUInt8;
  if (options.int8_activations && Rounds(call, s))
    for (size_t m = 0; m < rows; ++m) RoundToInt8(std::span(x).subspan(m * k, k), s.block);

  const std::span<const uint8_t> packed = BytesOf(*In(call, kB));
  const std::vector<float> scales = FloatsOf(*In(call, kScales));
  const std::vector<float> real_zeros = float_zeros ? FloatsOf(*zeros) : std::vector<float>();
  const std::vector<float> bias =
      In(call, kBias) != nullptr ? FloatsOf(*In(call, kBias)) : std::vector<float>();
  std::vector<float> y(rows * static_cast<size_t>(s.n));
  ForEach(options.pool, static_cast<size_t>(s.n), [&](size_t n) {
    std::vector<float> w(k);
    const uint8_t* row =
        packed.data() + static_cast<int64_t>(n) * s.blocks * PackedBytes(s.block, s.bits);
    for (int64_t b = 0; b < s.blocks; ++b) {
      const size_t at = n * static_cast<size_t>(s.blocks) + static_cast<size_t>(b);
      float zero = static_cast<float>(1 << (s.bits - 1));
      if (float_zeros)
        zero = real_zeros[at];
      else if (zeros != nullptr)
        zero =
            CodeAt(BytesOf(*zeros).data() + static_cast<int64_t>(n) * PackedBytes(s.blocks, s.bits),
                   b, s.bits);
      for (int64_t i = b * s.block; i < std::min(s.k, (b + 1) * s.block); ++i)
        w[static_cast<size_t>(i)] =
            (static_cast<float>(CodeAt(row, i, s.bits)) - zero) * scales[at];
    }
    for (size_t m = 0; m < rows; ++m)
      y[m * static_cast<size_t>(s.n) + n] = static_cast<float>(
          Dot(x.data() + m * k, w.data(), s.k) + (bias.empty() ? 0.0 : double{bias[n]}));
  });
  Shape shape = a->shape;
  shape.back() = s.n;
  OpResults results;
  results.emplace_back(ValueOf(a->type, std::move(shape), y));
  return results;
}

}  // namespace lockstep

// GatherBlockQuantized (com.microsoft): rows of a table of codes, (code - zero) * scale.
//
//   data    uint8: codes of 2, 4 or 8 bits packed per row, zero 2^(bits-1) where none is given
//           uint4, int4: shape in codes, packed across row ends, zero 0
//   scales  [rows..., ceil(width / block_size)]; zero points have the same shape, packed like data
//   output  the indices' shape, then a row; the type of scales. An index outside gives zeros.
#include "onnx_ops/operators.h"
#include "quant/code_bits.h"

namespace lockstep {
namespace {

enum Slot : uint8_t { kData, kIndices, kScales, kZeros };

struct Sizes {
  int bits;
  bool bytes, is_signed;
  int64_t block, entries, rows_per_entry, width, blocks;  // width in codes
};

Sizes SizesOf(const OpCall& call) {
  const OpTensor* data = In(call, kData);
  Sizes s{};
  s.bytes = data->type == OnnxType::kUInt8;
  s.is_signed = data->type == OnnxType::kInt4;
  s.bits = static_cast<int>(IntOf(call, "bits", 4));
  s.block = IntOf(call, "block_size", 128);
  s.entries = data->shape[0];
  s.rows_per_entry = ElementsOf({data->shape.begin() + 1, data->shape.end() - 1});
  s.width = s.bytes ? data->shape.back() * (8 / s.bits) : data->shape.back();
  s.blocks = CeilDiv(s.width, s.block);
  return s;
}

constexpr int64_t kMaxOutput = int64_t{1} << 33;

}  // namespace

Refusal CheckGatherBlockQuantized(const OpCall& call) {
  const OpTensor* data = In(call, kData);
  const bool bytes = data->type == OnnxType::kUInt8;
  const int64_t bits = IntOf(call, "bits", 4), block = IntOf(call, "block_size", 128);
  if (!IsBlockSize(block))
    return LoadFails(call, "block_size is {}, expected a power of two of at least 16; choose one",
                     block);
  if (bytes && bits != 2 && bits != 4 && bits != 8)
    return LoadFails(call, "bits is {}, expected 2, 4 or 8 for uint8 data; choose one", bits);
  if (!bytes && bits != 4)
    return LoadFails(call, "bits is {}, but the data is {}; write 4, or leave it out", bits,
                     OnnxTypeName(data->type));
  const auto rank = static_cast<int64_t>(data->shape.size());
  int64_t gather = IntOf(call, "gather_axis", 0), quantize = IntOf(call, "quantize_axis", 1);
  if (rank < 2)
    return LoadFails(call, "data has the shape {}, expected at least 2 dimensions",
                     ShapeText(data->shape));
  if (gather < 0) gather += rank;
  if (quantize < 0) quantize += rank;
  if (bytes && gather != 0)
    return LoadFails(call, "gather_axis is {}, but uint8 data is gathered along 0; transpose it",
                     gather);
  if (gather == quantize)
    return LoadFails(call,
                     "gather_axis and quantize_axis are both {}; write the last dimension as "
                     "quantize_axis",
                     gather);
  if (gather != 0 || quantize != rank - 1)
    return NotCovered(call,
                      "axes {} and {} of {} dimensions; gather along the first and quantize "
                      "along the last",
                      gather, quantize, rank);
  if (In(call, kScales)->type == OnnxType::kBFloat16)
    return NotCovered(call, "scales are bfloat16; the CPU takes float and float16; convert them");
  const Sizes s = SizesOf(call);
  Shape scales = data->shape;
  scales.back() = s.blocks;
  if (In(call, kScales)->shape != scales)
    return LoadFails(call, "scales has the shape {}, expected {}; write it so",
                     ShapeText(In(call, kScales)->shape), ShapeText(scales));
  if (bytes) scales.back() = PackedBytes(s.blocks, s.bits);
  if (const OpTensor* zeros = In(call, kZeros); zeros != nullptr && zeros->shape != scales)
    return LoadFails(call, "zero_points has the shape {}, expected {}; write it so",
                     ShapeText(zeros->shape), ShapeText(scales));
  const int64_t indices = ElementsOf(In(call, kIndices)->shape);
  if (s.width * s.rows_per_entry > 0 && indices > kMaxOutput / (s.width * s.rows_per_entry))
    return NotCovered(call,
                      "{} indices of {} elements each are more than memory holds; ask for "
                      "fewer at a time",
                      indices, s.width * s.rows_per_entry);
  return {};
}

Result<OpResults> RunGatherBlockQuantized(const OpCall& call, const OpOptions& options) {
  const Sizes s = SizesOf(call);
  const uint8_t* data = BytesOf(*In(call, kData)).data();
  const OpTensor* zeros = In(call, kZeros);
  const std::vector<float> scales = FloatsOf(*In(call, kScales));
  const std::vector<int64_t> indices = IntegersOf(*In(call, kIndices));
  const int64_t entry = s.rows_per_entry * s.width;
  // uint8 rows are whole bytes; 4-bit types run on across row ends.
  const auto number = [&](const uint8_t* packed, int64_t row, int64_t i, int64_t width) {
    if (s.bytes)
      return static_cast<float>(CodeAt(packed + row * PackedBytes(width, s.bits), i, s.bits));
    const int code = CodeAt(packed, row * width + i, 4);
    return static_cast<float>(s.is_signed && code > 7 ? code - 16 : code);
  };
  std::vector<float> y(indices.size() * static_cast<size_t>(entry), 0.0f);
  ForEach(options.pool, indices.size(), [&](size_t at) {
    const int64_t index = indices[at] < 0 ? indices[at] + s.entries : indices[at];
    if (index < 0 || index >= s.entries) return;
    float* to = y.data() + at * static_cast<size_t>(entry);
    for (int64_t r = 0; r < s.rows_per_entry; ++r) {
      const int64_t row = index * s.rows_per_entry + r;
      for (int64_t i = 0; i < s.width; ++i) {
        const int64_t b = i / s.block;
        const float zero = zeros != nullptr ? number(BytesOf(*zeros).data(), row, b, s.blocks)
                           : s.bytes        ? static_cast<float>(1 << (s.bits - 1))
                                            : 0.0f;
        *to++ = (number(data, row, i, s.width) - zero) *
                scales[static_cast<size_t>(row * s.blocks + b)];
      }
    }
  });
  Shape shape = In(call, kIndices)->shape;
  shape.insert(shape.end(), In(call, kData)->shape.begin() + 1, In(call, kData)->shape.end());
  shape.back() = s.width;
  OpResults results;
  results.emplace_back(ValueOf(In(call, kScales)->type, std::move(shape), y));
  return results;
}

}  // namespace lockstep

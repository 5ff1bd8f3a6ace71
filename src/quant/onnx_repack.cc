#include "quant/onnx_repack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "quant/block.h"
#include "quant/code_bits.h"
#include "quant/coded_rows.h"
#include "quant/k_scales.h"

namespace lockstep {
namespace {

// What a run of `block` elements is made of: element = scale * integer + minimum.
struct RunScale {
  float scale = 0, minimum = 0;
};
// The runs of one block of the type at `source`.
using ReadScales = void (*)(const std::byte* source, RunScale* runs);

void HalfAtFront(const std::byte* source, RunScale* runs) { runs[0] = {.scale = LoadHalf(source)}; }

// Codes are doubled E2M1 numbers, 0 to 12 with a sign, under half of the scale 2^(e - 127).
void MxScale(const std::byte* source, RunScale* runs) {
  const uint32_t e = LoadAs<uint8_t>(source);
  runs[0] = {.scale = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23)};
}

void Q41Scales(const std::byte* source, RunScale* runs) {
  runs[0] = {.scale = LoadHalf(source), .minimum = LoadHalf(source + 2)};
}

void Q4KScales(const std::byte* source, RunScale* runs) {
  const float d = LoadHalf(source), dmin = LoadHalf(source + 2);
  const KScales scales = UnpackKScales(Bytes(source + 4));
  for (int i = 0; i < 8; ++i)
    runs[i] = {.scale = d * static_cast<float>(scales.scale[i]),
               .minimum = -(dmin * static_cast<float>(scales.minimum[i]))};
}

void Q6KScales(const std::byte* source, RunScale* runs) {
  const float d = LoadHalf(source + 208);
  for (int i = 0; i < 16; ++i)
    runs[i] = {.scale = d * static_cast<float>(SignedBytes(source + 192)[i])};
}

struct Row {
  RepackRule rule;
  ReadScales read;
};

// clang-format off
constexpr Row kRows[] = {
    {{"IQ4_NL", 8, 32, true,  "the values of its table are 8-bit integers"},                      HalfAtFront},
    {{"MXFP4",  8, 32, true,  "doubled, its values are integers from -12 to 12: 5 bits, not 4"},  MxScale},
    {{"Q4_0",   4, 32, true,  "the same codes and scales"},                                       HalfAtFront},
    {{"Q4_1",   4, 32, false, "its minimum is no multiple of its scale"},                         Q41Scales},
    {{"Q4_K",   4, 32, false, "its minima are no multiples of its scales"},                       Q4KScales},
    {{"Q5_0",   8, 32, true,  "5-bit codes in bytes"},                                            HalfAtFront},
    {{"Q6_K",   8, 16, true,  "6-bit codes in bytes, the product of its two scales is a float"},  Q6KScales},
    {{"Q8_0",   8, 32, true,  "the same codes and scales"},                                       HalfAtFront},
};
// clang-format on
constexpr auto kRules = [] {
  std::array<RepackRule, std::size(kRows)> rules{};
  for (size_t i = 0; i < rules.size(); ++i) {
    rules[i] = kRows[i].rule;
    rules[i].half_scales = kRows[i].read == HalfAtFront;
  }
  return rules;
}();

const Row* FindRow(std::string_view type) {
  const auto* it = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& row) { return row.rule.type == type; });
  return it == std::end(kRows) ? nullptr : it;
}

// One run of elements as codes; zero is a code (exact types) or a float.
struct CodedRun {
  float scale = 0, zero = 0;
};

// w[i] = scale * integer: the integer is what the division comes nearest to, since one rounding of
// a product of at most 7 bits moves it by far less than a half.
CodedRun CodesOfMultiples(std::span<const float> w, float scale, int bits, uint8_t* codes) {
  const int zero = 1 << (bits - 1);
  for (size_t i = 0; i < w.size(); ++i) {
    int q = scale == 0 ? 0 : static_cast<int>(std::nearbyint(w[i] / scale));
    // 0 * scale is a zero of scale's sign; -0 is the product with -1.
    if (scale == 0 && std::signbit(w[i]) != std::signbit(scale)) q = -1;
    codes[i] = static_cast<uint8_t>(std::clamp(q + zero, 0, 2 * zero - 1));
  }
  return {.scale = scale, .zero = static_cast<float>(zero)};
}

CodedRun CodesWithMinimum(std::span<const float> w, const RunScale& run, int bits, uint8_t* codes) {
  const int top = (1 << bits) - 1;
  // Nothing but the minimum: one code for it.
  if (run.scale == 0) {
    std::fill_n(codes, w.size(), uint8_t{1});
    return {.scale = run.minimum, .zero = 0};
  }
  for (size_t i = 0; i < w.size(); ++i)
    codes[i] = static_cast<uint8_t>(std::clamp(
        static_cast<int>(std::nearbyint((double{w[i]} - run.minimum) / run.scale)), 0, top));
  return {.scale = run.scale, .zero = -run.minimum / run.scale};
}

class Repacker {
 public:
  Repacker(const TensorType& type, const Row& row, DType scale_type,
           std::span<const StoredRows> matrices, bool experts)
      : type_(type),
        row_(row),
        matrices_(matrices),
        rows_(matrices[0].rows),
        cols_(matrices[0].cols),
        blocks_(cols_ / row.rule.block) {
    const auto count = static_cast<int64_t>(matrices.size());
    out_.recipe = {.bits = row.rule.bits, .block = row.rule.block, .scale_type = scale_type};
    const int64_t row_bytes = PackedBytes(cols_, row.rule.bits);
    out_.weight.codes =
        experts ? BytesPart({count, rows_, row_bytes})
                : BytesPart({rows_, blocks_, PackedBytes(row.rule.block, row.rule.bits)});
    out_.weight.scales = experts ? ScalesPart(scale_type, {count, rows_, blocks_})
                                 : ScalesPart(scale_type, {rows_, blocks_});
    if (!row.rule.exact) out_.weight.zero_points = ScalesPart(DType::kF32, {rows_, blocks_});
  }

  Result<Repacked> Run(ThreadPool* pool) {
    const auto n = static_cast<size_t>(rows_) * matrices_.size();
    tallies_.resize(n);
    const auto one = [&](size_t i) { DoRow(static_cast<int64_t>(i)); };
    if (pool != nullptr)
      pool->For(n, one);
    else
      for (size_t i = 0; i < n; ++i) one(i);
    for (size_t i = 0; i < n; ++i) {
      const Tally& tally = tallies_[i];
      if (tally.not_finite)
        return InputError("row {} of {} weights is not finite; mend the file", i, type_.name);
      if (tally.bad_scale)
        return InputError(
            "row {} of {} weights has a scale that is not finite or that {} does not "
            "hold; store scales as F32, or mend the file",
            i, type_.name, DTypeName(out_.recipe.scale_type));
      out_.differing += tally.differing;
      out_.largest_difference = std::max(out_.largest_difference, tally.largest);
      out_.weight.squared_error += tally.squared_error;
      out_.weight.squared_norm += tally.squared_norm;
    }
    return std::move(out_);
  }

 private:
  struct Tally {
    bool not_finite = false, bad_scale = false;
    int64_t differing = 0;
    double largest = 0, squared_error = 0, squared_norm = 0;
  };

  void DoRow(int64_t index) {
    const auto cols = static_cast<size_t>(cols_), block = static_cast<size_t>(row_.rule.block);
    const std::byte* source =
        matrices_[static_cast<size_t>(index / rows_)].row_bytes(index % rows_);
    std::vector<float> w(cols);
    type_.dequantize(source, cols_, w.data());
    std::vector<RunScale> runs(static_cast<size_t>(blocks_));
    const int64_t runs_per_block = type_.block_elements / row_.rule.block;
    for (int64_t b = 0; b < cols_ / type_.block_elements; ++b)
      row_.read(source + b * type_.block_bytes, runs.data() + b * runs_per_block);
    std::vector<uint8_t> codes(cols);
    Tally& tally = tallies_[static_cast<size_t>(index)];
    tally.not_finite = !std::all_of(w.begin(), w.end(), [](float x) { return std::isfinite(x); });
    if (tally.not_finite) return;
    for (size_t b = 0; b < runs.size(); ++b) {
      const auto part = std::span(w).subspan(b * block, block);
      uint8_t* to = codes.data() + b * block;
      const CodedRun run = row_.rule.exact
                               ? CodesOfMultiples(part, runs[b].scale, row_.rule.bits, to)
                               : CodesWithMinimum(part, runs[b], row_.rule.bits, to);
      const int64_t at = index * blocks_ + static_cast<int64_t>(b);
      StoreScale(out_.weight.scales, at, run.scale);
      if (out_.weight.zero_points) StoreScale(*out_.weight.zero_points, at, run.zero);
      if (!std::isfinite(run.scale) || !std::isfinite(run.zero) ||
          LoadScale(out_.weight.scales, at) != run.scale)
        tally.bad_scale = true;
      Compare(part, {to, block}, run, tally);
    }
    PackCodes(codes, row_.rule.bits,
              BytesIn(out_.weight.codes) + index * PackedBytes(cols_, row_.rule.bits));
  }

  static void Compare(std::span<const float> w, std::span<const uint8_t> codes, const CodedRun& run,
                      Tally& tally) {
    double most = 0, off = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const float x = (static_cast<float>(codes[i]) - run.zero) * run.scale;
      most = std::max<double>(most, std::abs(w[i]));
      tally.squared_norm += double{w[i]} * w[i];
      if (std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(w[i])) continue;
      ++tally.differing;
      const double d = std::abs(double{x} - w[i]);
      tally.squared_error += d * d;
      off = std::max(off, d);
    }
    if (most > 0) tally.largest = std::max(tally.largest, off / most);
  }

  const TensorType& type_;
  const Row& row_;
  std::span<const StoredRows> matrices_;
  int64_t rows_, cols_, blocks_;
  Repacked out_;
  std::vector<Tally> tallies_;
};

Result<Repacked> Repack(const TensorType& type, std::span<const StoredRows> matrices,
                        DType scale_type, bool experts, ThreadPool* pool) {
  const Row* row = FindRow(type.name);
  if (row == nullptr) {
    std::string known;
    for (const Row& one : kRows)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", one.rule.type);
    return UnsupportedError(
        "{} codes fit no operator of ONNX Runtime; those of {} do; quantize the "
        "weights again",
        type.name, known);
  }
  if (!row->rule.exact && (experts || scale_type != DType::kF32))
    return UnsupportedError(
        "{} codes need float zero points, which only MatMulNBits with float "
        "scales has ({}); quantize the weights again",
        type.name, row->rule.why);
  if (matrices.empty()) return UsageError("there is no matrix to repack");
  for (const StoredRows& matrix : matrices)
    if (matrix.rows != matrices[0].rows || matrix.cols != matrices[0].cols)
      return UsageError("the experts' matrices differ in shape, but QMoE holds one shape");
  const CodeRecipe recipe{
      .bits = row->rule.bits, .block = row->rule.block, .scale_type = scale_type};
  LS_RETURN_IF_ERROR(CheckRecipe(recipe, matrices[0].rows, matrices[0].cols));
  if (matrices[0].cols % type.block_elements != 0)
    return UsageError("rows of {} are no multiple of {}'s {} elements", matrices[0].cols, type.name,
                      type.block_elements);
  return Repacker(type, *row, scale_type, matrices, experts).Run(pool);
}

}  // namespace

std::span<const RepackRule> RepackRules() { return kRules; }

const RepackRule* FindRepackRule(std::string_view type) {
  const Row* row = FindRow(type);
  return row == nullptr ? nullptr : &row->rule;
}

Result<Repacked> RepackForMatMulNBits(const TensorType& type, const StoredRows& matrix,
                                      DType scale_type, ThreadPool* pool) {
  return Repack(type, {&matrix, 1}, scale_type, false, pool);
}
Result<Repacked> RepackForQMoe(const TensorType& type, std::span<const StoredRows> experts,
                               DType scale_type, ThreadPool* pool) {
  return Repack(type, experts, scale_type, true, pool);
}

}  // namespace lockstep

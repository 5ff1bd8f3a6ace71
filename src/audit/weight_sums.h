// Two weights as numbers: how near one is to the other, and whether codes of few bits stand for the
// reference's. Shared by the audits of ONNX graphs and of checkpoints, so that both judge alike
// (docs/numerics.md, "Quantized exports").
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// Differences of fp32 arithmetic in what an exporter folds (w + 1, a factor).
inline constexpr double kFolded = 3e-7;

// A weight by rows, from wherever it is.
struct Rows {
  int64_t rows = 0, cols = 0;
  std::function<void(int64_t row, float* out)> read;

  std::vector<float> Row(int64_t row) const {
    std::vector<float> out(static_cast<size_t>(cols));
    read(row, out.data());
    return out;
  }
};

// Of the reference (a) and the other (b), element by element.
struct Sums {
  double n = 0, a = 0, b = 0, ab = 0, aa = 0, bb = 0, max_abs = 0, largest = 0, largest_b = 0;
  bool bf16 = true, fp16 = true;  // each of the others is the reference's number in fewer bits
  // Numbers that are not finite: in no sum above, and max_abs is infinite where there is one.
  int64_t not_finite_a = 0, not_finite_b = 0;

  void Add(std::span<const float> ref, std::span<const float> got);
  double variance_a() const { return aa - a * a / n; }
  double variance_b() const { return bb - b * b / n; }
  double correlation() const;
};

Sums SumsOf(const Rows& ref, const Rows& got);

// Codes of so many bits that stand for these numbers: as close as such codes come, neither longer
// nor shorter, nor shifted. A zero point that is off by one keeps a correlation of 0.994 where
// sound codes have 0.996 (normal numbers, 4 bits, blocks of 32: weight_sums_test.cc), so that more
// is asked: the slope, and the mean of the differences beside their root mean square, which for
// rounding alone is near 0.
bool AreSoundCodes(const Sums& sums, int64_t bits);

// Every number lies within two steps of the codes of its block (a row, where scales are per row): a
// block or a row that is left out, or a code with a wrong bit, does not.
bool EveryBlockFollows(const Rows& ref, const Rows& got, int64_t bits, int64_t block);

// How numbers lie beside the codes that stand for them. Codes are made by rounding to the nearest
// of the block's scale, so that x / scale is within half a step of each that is not at the end of
// its block's range. Under a scale that is too large they lie nearer to 0 than that, under one that
// is too small further away; no rounding puts them all on one side.
struct CodeSides {
  int64_t codes = 0;                // that were looked at
  int64_t inward = 0, outward = 0;  // more than half a step nearer to 0, or further
  // Nearly all misses are on one side, and there are enough to tell.
  bool OneSided() const;
};
// `units`: the codes less their zero point. `precision`: of one scale, as a factor. The largest and
// the least code of a block do not count: there numbers are cut off.
CodeSides SidesOf(const Rows& ref, const Rows& got, const Rows& units, int64_t block,
                  double precision);

// The scale under which a block's codes (less their zero point) are its numbers, rounded to the
// nearest: the middle of all such. Absent where there is none.
std::optional<double> NearestScale(std::span<const float> numbers, std::span<const float> units);

// A few rows agree closely enough that the whole may.
bool SampleAgrees(const Rows& ref, const Rows& got, double correlation);

}  // namespace lockstep

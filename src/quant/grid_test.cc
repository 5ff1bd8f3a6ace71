#include "quant/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lockstep {
namespace {

// Weights as they come: bell-shaped, with outliers, on one side of zero, few values.
std::vector<float> Sample(int kind, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  if (kind == 1) x[n / 2] = 0.3f;
  if (kind == 2)
    for (float& v : x) v = std::abs(v) + 0.01f;
  if (kind == 3)
    for (float& v : x) v = v > 0 ? 0.5f : -0.25f;
  if (kind == 4) std::fill(x.begin(), x.end(), 0.0f);
  if (kind == 5)
    for (float& v : x) v *= 1e-38f;
  return x;
}
constexpr int kKinds = 6;

std::vector<GridSpec> Specs() {
  std::vector<GridSpec> specs;
  for (const int bits : {2, 3, 4, 8})
    for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes})
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
        specs.push_back(
            {.bits = bits, .zeros = zeros, .search = ScaleSearch::kNearest, .scale_type = type});
  return specs;
}

TEST(Grid, OfNearestRoundingTheExtremeIsCodeZeroAndExact) {
  const std::vector<float> x = {0.1f, -0.8f, 0.79f, 0.0f};
  std::vector<uint8_t> codes(x.size());
  const Grid grid = FitGrid(x, {.bits = 4, .search = ScaleSearch::kNearest}, codes);
  EXPECT_EQ(grid.scale, 0.1f);
  EXPECT_EQ(codes, (std::vector<uint8_t>{9, 0, 15, 8}));
  EXPECT_EQ(grid.Value(codes[1]), -0.8f);
  // The sign of the extreme is the scale's.
  const std::vector<float> mirrored = {-0.1f, 0.8f, -0.79f, 0.0f};
  const Grid other = FitGrid(mirrored, {.bits = 4, .search = ScaleSearch::kNearest}, codes);
  EXPECT_EQ(other.scale, -0.1f);
  EXPECT_EQ(codes, (std::vector<uint8_t>{9, 0, 15, 8}));
}

TEST(Grid, WithZeroPointsTheRangeOfTheRunIsUsed) {
  const std::vector<float> x = {0.0f, 0.5f, 1.0f, 1.5f};
  std::vector<uint8_t> codes(x.size());
  const Grid grid =
      FitGrid(x, {.bits = 4, .zeros = ZeroPoints::kCodes, .search = ScaleSearch::kNearest}, codes);
  EXPECT_EQ(grid.zero, 0);
  EXPECT_FLOAT_EQ(grid.scale, 0.1f);
  EXPECT_EQ(codes, (std::vector<uint8_t>{0, 5, 10, 15}));
}

TEST(Grid, TheSearchIsNeverWorseThanNearestRounding) {
  int better = 0;
  for (GridSpec spec : Specs())
    for (int kind = 0; kind < kKinds; ++kind)
      for (const size_t n : {1, 5, 32, 128, 700}) {
        const auto x = Sample(kind, n, static_cast<uint32_t>(n) + static_cast<uint32_t>(kind));
        std::vector<uint8_t> codes(n);
        spec.search = ScaleSearch::kNearest;
        Grid grid = FitGrid(x, spec, codes);
        const double nearest = GridError(x, codes, grid);
        spec.search = ScaleSearch::kSquaredError;
        grid = FitGrid(x, spec, codes);
        const double searched = GridError(x, codes, grid);
        EXPECT_LE(searched, nearest) << spec.bits << " bits, kind " << kind << ", " << n;
        better += searched < nearest;
      }
  EXPECT_GT(better, 0);
}

TEST(Grid, CodesAreTheNearestOnesAndWithinTheirBits) {
  for (GridSpec spec : Specs())
    for (const ScaleSearch search : {ScaleSearch::kNearest, ScaleSearch::kSquaredError})
      for (int kind = 0; kind < kKinds; ++kind) {
        spec.search = search;
        const auto x = Sample(kind, 64, 7);
        std::vector<uint8_t> codes(x.size());
        const Grid grid = FitGrid(x, spec, codes);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_LT(int{codes[i]}, 1 << spec.bits);
          const double mine = std::abs(double{x[i]} - grid.Value(codes[i]));
          for (int c = 0; c < 1 << spec.bits; ++c)
            EXPECT_LE(mine, std::abs(double{x[i]} - grid.Value(static_cast<uint8_t>(c))) +
                                1e-6 * std::abs(grid.scale));
        }
      }
}

TEST(Grid, TheScaleIsANumberOfItsType) {
  for (const GridSpec& spec : Specs()) {
    const auto x = Sample(0, 64, 3);
    std::vector<uint8_t> codes(x.size());
    const float scale = FitGrid(x, spec, codes).scale;
    const float stored = spec.scale_type == DType::kF16    ? ToFloat(ToFloat16(scale))
                         : spec.scale_type == DType::kBF16 ? ToFloat(ToBFloat16(scale))
                                                           : scale;
    EXPECT_EQ(scale, stored);
  }
}

TEST(Grid, ImportanceMovesTheErrorAwayFromWhatCounts) {
  const auto x = Sample(1, 64, 11);
  std::vector<float> importance(x.size(), 1.0f);
  importance[x.size() / 2] = 0;  // the outlier does not count
  std::vector<uint8_t> codes(x.size()), weighted(x.size());
  const Grid plain = FitGrid(x, {}, codes);
  const Grid grid = FitGrid(x, {}, weighted, importance);
  EXPECT_LT(GridError(x, weighted, grid, importance),
            0.75 * GridError(x, codes, plain, importance));
  // What does not count is kept within sight all the same: codes stay those of their weight.
  EXPECT_LE(std::abs(x[x.size() / 2] - grid.Value(weighted[x.size() / 2])),
            0.25 * std::abs(x[x.size() / 2]));
}

TEST(Grid, ARunOfZerosHasZerosAndATooLargeOneSaysSo) {
  std::vector<float> x(32, 0.0f);
  std::vector<uint8_t> codes(32);
  for (const GridSpec& spec : Specs()) {
    const Grid grid = FitGrid(x, spec, codes);
    for (const uint8_t code : codes) EXPECT_EQ(grid.Value(code), 0.0f);
  }
  x[3] = 1e30f;
  EXPECT_TRUE(std::isinf(FitGrid(x, {.scale_type = DType::kF16}, codes).scale));
}

}  // namespace
}  // namespace lockstep

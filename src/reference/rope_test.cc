#include "reference/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

RopeSpec Plain(int64_t rotary_dim) { return {.theta = 10000, .rotary_dim = rotary_dim}; }

std::vector<float> Ramp(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = 0.25f + static_cast<float>(i);
  return x;
}

TEST(Rope, RotatingByZeroIsIdentity) {
  std::vector<float> x = Ramp(16);
  ApplyRope<float>(RopeTable(Plain(8), 0, 1, 1), RopeLayout::kHalf, 2, 8, 0, {x.data(), 1, 16});
  EXPECT_EQ(x, Ramp(16));
}

TEST(Rope, KeepsLengthOfEachPair) {
  std::vector<double> x{3, 1, 4, 2};
  ApplyRope<double>(RopeTable(Plain(4), 77, 1, 78), RopeLayout::kHalf, 1, 4, 0, {x.data(), 1, 4});
  EXPECT_NEAR(x[0] * x[0] + x[2] * x[2], 25, 1e-5);
  EXPECT_NEAR(x[1] * x[1] + x[3] * x[3], 5, 1e-5);
}

TEST(Rope, TurnsOnlyTheRotaryPart) {
  std::vector<float> x = Ramp(16);
  ApplyRope<float>(RopeTable(Plain(4), 5, 1, 6), RopeLayout::kHalf, 2, 8, 0, {x.data(), 1, 16});
  const std::vector<float> before = Ramp(16);
  for (size_t head : {0, 8}) {
    for (size_t i = 0; i < 4; ++i) EXPECT_NE(x[head + i], before[head + i]);
    for (size_t i = 4; i < 8; ++i) EXPECT_EQ(x[head + i], before[head + i]);
  }
}

TEST(Rope, ScoresDependOnDistanceAlone) {
  const auto score = [](int64_t query, int64_t key) {
    std::vector<double> q{1, 2, -1, 0.5}, k{0.3, -2, 1, 1};
    ApplyRope<double>(RopeTable(Plain(4), query, 1, query + 1), RopeLayout::kHalf, 1, 4, 0,
                      {q.data(), 1, 4});
    ApplyRope<double>(RopeTable(Plain(4), key, 1, key + 1), RopeLayout::kHalf, 1, 4, 0,
                      {k.data(), 1, 4});
    return q[0] * k[0] + q[1] * k[1] + q[2] * k[2] + q[3] * k[3];
  };
  EXPECT_NEAR(score(9, 4), score(30, 25), 1e-5);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-2);
}

TEST(Rope, LayoutsAreOnePermutationApart) {
  std::vector<float> half{1, 2, 3, 4, 5, 6, 7, 8}, pairs{1, 5, 2, 6, 3, 7, 4, 8};
  const RopeTable table(Plain(8), 11, 1, 12);
  ApplyRope<float>(table, RopeLayout::kHalf, 1, 8, 0, {half.data(), 1, 8});
  ApplyRope<float>(table, RopeLayout::kInterleaved, 1, 8, 0, {pairs.data(), 1, 8});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(half[i], pairs[2 * i]);
    EXPECT_EQ(half[i + 4], pairs[2 * i + 1]);
  }
}

TEST(RopeScaling, LinearByOneIsNone) {
  RopeSpec scaled = Plain(8);
  scaled.scaling = LinearScaling{1};
  EXPECT_EQ(InverseFrequencies(scaled, 10), InverseFrequencies(Plain(8), 10));
}

TEST(RopeScaling, DynamicIsNoneUpToTheOriginalContext) {
  RopeSpec scaled = Plain(8);
  scaled.scaling = DynamicScaling{.factor = 2, .original_max_position_embeddings = 32};
  EXPECT_EQ(InverseFrequencies(scaled, 32), InverseFrequencies(Plain(8), 32));
  EXPECT_NE(InverseFrequencies(scaled, 33), InverseFrequencies(Plain(8), 33));
}

TEST(RopeScaling, Llama3KeepsTheFastestAndDividesTheSlowest) {
  RopeSpec scaled{.theta = 500000, .rotary_dim = 64};
  scaled.scaling = Llama3Scaling{.factor = 8,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4,
                                 .original_max_position_embeddings = 8192};
  const auto plain = InverseFrequencies({.theta = 500000, .rotary_dim = 64}, 1);
  const auto inverse = InverseFrequencies(scaled, 1);
  EXPECT_EQ(inverse.front(), plain.front());
  EXPECT_EQ(inverse.back(), plain.back() / 8);
}

TEST(RopeScaling, YarnKeepsTheFastestAndDividesTheSlowest) {
  RopeSpec scaled{.theta = 10000, .rotary_dim = 64};
  scaled.scaling = YarnScaling{
      .factor = 4, .attention_factor = 1.1386, .original_max_position_embeddings = 4096};
  const auto plain = InverseFrequencies({.theta = 10000, .rotary_dim = 64}, 1);
  const auto inverse = InverseFrequencies(scaled, 1);
  EXPECT_EQ(inverse.front(), plain.front());
  EXPECT_FLOAT_EQ(inverse.back(), plain.back() / 4);
  EXPECT_EQ(RopeTable(scaled, 0, 1, 1).cos[0], 1.1386f);
}

TEST(RopeScaling, LongRopeChoosesByTheLengthOfTheCall) {
  RopeSpec scaled = Plain(4);
  scaled.scaling = LongRopeScaling{
      .short_factor = {1, 1}, .long_factor = {2, 4}, .original_max_position_embeddings = 16};
  EXPECT_EQ(InverseFrequencies(scaled, 16), InverseFrequencies(Plain(4), 16));
  EXPECT_FLOAT_EQ(InverseFrequencies(scaled, 17)[1], InverseFrequencies(Plain(4), 17)[1] / 4);
}

}  // namespace
}  // namespace lockstep

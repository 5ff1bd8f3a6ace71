#include "reference/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

TEST(Norm, RmsGivesUnitMeanSquare) {
  std::vector<double> x{3, -4, 12, 0};
  Norm<double>({.kind = NormKind::kRms}, {}, {}, 4, {x.data(), 1, 4}, {x.data(), 1, 4});
  EXPECT_NEAR(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / 4, 1, 1e-12);
}

TEST(Norm, LayerNormGivesZeroMeanAndUnitVariance) {
  std::vector<double> x{3, -4, 12, 0};
  Norm<double>({.kind = NormKind::kLayer}, {}, {}, 4, {x.data(), 1, 4}, {x.data(), 1, 4});
  EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0), 0, 1e-12);
  EXPECT_NEAR(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / 4, 1, 1e-12);
}

TEST(Norm, AnOffsetIsAddedToTheWeight) {
  std::vector<float> x{1, 2}, y{1, 2};
  const std::vector<float> w{0.5f, -0.25f}, one_plus{1.5f, 0.75f};
  const NormSpec offset{.eps = 1e-6, .weight_offset = 1}, plain{.eps = 1e-6};
  Norm<float>(offset, w, {}, 2, {x.data(), 1, 2}, {x.data(), 1, 2});
  Norm<float>(plain, one_plus, {}, 2, {y.data(), 1, 2}, {y.data(), 1, 2});
  EXPECT_EQ(x, y);
}

TEST(Norm, RoundingTheWeightToBF16IsAFactOfItsOwn) {
  std::vector<float> x{1, 1};
  const std::vector<float> w{0.001f, 0};  // 1.001 is no bfloat16; 1 is
  Norm<float>({.weight_offset = 1, .weight_rounding = Rounding::kBF16}, w, {}, 2, {x.data(), 1, 2},
              {x.data(), 1, 2});
  EXPECT_EQ(x[0], x[1]);
}

TEST(Norm, GroupsAreNormedByThemselves) {
  std::vector<double> x{3, 4, 30, 40};
  Norm<double>({}, {}, {}, 2, {x.data(), 1, 4}, {x.data(), 1, 4});
  EXPECT_NEAR(x[0], x[2], 1e-12);
  EXPECT_NEAR(x[1], x[3], 1e-12);
}

TEST(Activation, ValuesAtOne) {
  // From the definitions: sigmoid(1), Phi(1), the tanh form, sigmoid(1.702).
  EXPECT_NEAR(Activate(Activation::kSilu, 1.0), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(Activate(Activation::kGelu, 1.0), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(Activate(Activation::kGeluTanh, 1.0), 0.8411919906082768, 1e-15);
  EXPECT_NEAR(Activate(Activation::kQuickGelu, 1.0), 0.8457957659328212, 1e-12);
  EXPECT_EQ(Activate(Activation::kRelu, -2.0), 0);
  EXPECT_EQ(Activate(Activation::kRelu2, 3.0), 9);
}

TEST(ClampedGlu, LimitsBothHalvesAndAddsTheOffset) {
  std::vector<double> gate{100}, up{-100};
  MlpSpec mlp;
  mlp.clamped_glu = ClampedGlu{.alpha = 1.702, .limit = 7, .up_offset = 1};
  GatedActivation<double>(mlp, {up.data(), 1, 1}, {gate.data(), 1, 1});
  EXPECT_NEAR(gate[0], 7 / (1 + std::exp(-1.702 * 7)) * -6, 1e-12);
}

TEST(Softmax, ASinkTakesItsShareAndIsDropped) {
  std::vector<double> x{1, 1, 1};
  const double sink = 1;
  Softmax<double>(x, &sink);
  EXPECT_NEAR(x[0] + x[1] + x[2], 0.75, 1e-15);
}

TEST(Softmax, HugeScoresDoNotOverflow) {
  std::vector<float> x{3e38f, 3e38f};
  Softmax<float>(x);
  EXPECT_EQ(x[0], 0.5f);
}

std::vector<double> Routed(const RouterSpec& router, std::vector<double> logits, int64_t k = 2,
                           std::vector<float> bias = {}) {
  Route<double>(router, k, bias, {logits.data(), 1, logits.size()});
  return logits;
}

// Mixtral's order and gpt-oss' order are the same function: this must never be reported as a fault.
TEST(Router, SoftmaxTopKRenormalisedEqualsTopKSoftmax) {
  const std::vector<double> logits{0.3, 2, -1, 1.5};
  const auto a =
      Routed({.scoring = RouterScoring::kSoftmaxThenTopK, .normalize_top_k = true}, logits);
  const auto b = Routed({.scoring = RouterScoring::kTopKThenSoftmax}, logits);
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-15);
}

TEST(Router, ASelectionBiasChoosesButDoesNotWeigh) {
  const RouterSpec router{.scoring = RouterScoring::kSigmoidThenTopK, .selection_bias = true};
  const auto weights = Routed(router, {0, 1, 2}, 1, {10, 0, 0});
  EXPECT_EQ(weights, (std::vector<double>{0.5, 0, 0}));
}

TEST(Router, OnlyTheBestGroupsAreChosenFrom) {
  // Group 0 has the single best expert, group 1 the better sum of two.
  const RouterSpec router{.scoring = RouterScoring::kSigmoidThenTopK,
                          .groups = RouterGroups{.n_group = 2, .topk_group = 1}};
  const auto weights = Routed(router, {3, -9, 2, 2}, 2);
  EXPECT_EQ(weights[0], 0);
  EXPECT_GT(weights[2], 0);
  EXPECT_GT(weights[3], 0);
}

TEST(Router, SparseMixerWeighsEachPickAgainstItsNearRivals) {
  const RouterSpec router{.scoring = RouterScoring::kSparseMixer, .sparse_mixer_jitter = 0.01};
  const auto weights = Routed(router, {5, 1, 4.95, -3});
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-0.05)), 1e-12);  // 4.95 lies within 2 % of 5
  EXPECT_EQ(weights[2], 1);                                   // nothing lies within 2 % of 4.95
  EXPECT_EQ(weights[1] + weights[3], 0);
}

TEST(Scale, DividesOrMultipliesAndRoundsItsValueFirst) {
  std::vector<double> x{8};
  ApplyScale<double>({.value = 4, .divide = true}, {x.data(), 1, 1});
  EXPECT_EQ(x[0], 2);
  ApplyScale<double>({.value = 8.944271909999159, .rounding = Rounding::kTwoDecimals},
                     {x.data(), 1, 1});
  EXPECT_EQ(x[0], 17.88);
}

}  // namespace
}  // namespace lockstep

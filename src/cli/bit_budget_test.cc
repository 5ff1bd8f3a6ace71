#include "cli/bit_budget.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

namespace lockstep {
namespace {

// Groups whose effects fall with their bytes, mostly: what is measured may rise where it is noise.
std::vector<BitGroup> RandomGroups(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> any(0.1, 1);
  std::vector<BitGroup> out(20);
  for (BitGroup& group : out) {
    double bytes = 100 * any(random), effect = any(random);
    for (int i = 0; i < 5; ++i) {
      group.options.push_back({.bytes = bytes, .effect = effect});
      bytes += 50 * any(random);
      effect *= 1.3 * any(random);
    }
    group.elements = 100;
  }
  return out;
}

TEST(BitBudget, TheFrontierGrowsInBytesAndFallsInEffectEverMoreSlowly) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const auto frontier = FrontierOf(RandomGroups(seed));
    ASSERT_GT(frontier.size(), 10u);
    double slope = 1e300;
    for (size_t i = 1; i < frontier.size(); ++i) {
      const double more = frontier[i].bytes - frontier[i - 1].bytes;
      const double fall = frontier[i - 1].effect - frontier[i].effect;
      EXPECT_GT(more, 0);
      EXPECT_GE(fall, 0);
      EXPECT_LE(fall / more, slope * (1 + 1e-9) + 1e-12);
      slope = fall / more;
    }
  }
}

TEST(BitBudget, WhatIsChosenAtAPointHasItsBytesAndEffect) {
  std::vector<BitGroup> groups = RandomGroups(7);
  const auto frontier = FrontierOf(groups);
  for (size_t i = 0; i < frontier.size(); ++i) {
    ChooseAt(groups, frontier, i);
    double bytes = 0, effect = 0;
    for (const BitGroup& group : groups) {
      bytes += group.options[group.chosen].bytes;
      effect += group.options[group.chosen].effect;
    }
    EXPECT_NEAR(bytes, frontier[i].bytes, 1e-6);
    EXPECT_NEAR(effect, frontier[i].effect, 1e-6);
  }
}

TEST(BitBudget, ReadsBitsPerWeightAndRefusesAnythingElse) {
  EXPECT_EQ(*ParseBudget("4.25bpw"), 4.25);
  EXPECT_EQ(*ParseBudget("5"), 5);
  for (const char* hostile : {"", "bpw", "4.25bpwbpw", "nan", "inf", "-4bpw", "1bpw", "1e9", "4,25",
                              "4.25 bpw", "0x4", "\xff\xfe"})
    EXPECT_FALSE(ParseBudget(hostile)) << hostile;
}

class OfModels : public testing::TestWithParam<const char*> {};

// Small models, large steps: the sum of effects is no measure there, the size is.
TEST_P(OfModels, ABudgetIsMetAndMoreBitsAreNearer) {
  const auto model =
      LoadModel(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models" / GetParam());
  ASSERT_TRUE(model) << model.error().message;
  ThreadPool pool(2);
  const std::vector<int32_t> ids = {1, 5, 9, 2, 40, 7, 3, 11};
  const auto go_on = [](std::string_view, int64_t, int64_t) { return true; };
  double last = 1e300;
  const auto whole = MeasureBitBudget(*model, {.bits_per_weight = 16}, ids, pool, go_on);
  ASSERT_TRUE(whole) << whole.error().message;
  const double least = whole->BitsPerWeight(whole->frontier.front()),
               most = whole->BitsPerWeight(whole->frontier.back());
  for (const double share : {0.02, 0.4, 1.0}) {
    const double bits = least + share * (most - least);
    const auto budget = MeasureBitBudget(*model, {.bits_per_weight = bits}, ids, pool, go_on);
    ASSERT_TRUE(budget) << budget.error().message;
    double bytes = 0;
    for (const BitGroup& group : budget->groups) bytes += group.options[group.chosen].bytes;
    EXPECT_LE(8 * bytes / static_cast<double>(budget->elements), bits);
    EXPECT_GT(budget->measured, 0);
    EXPECT_LT(budget->measured, last);
    last = budget->measured;
    size_t planned = 0;
    for (const BitGroup& group : budget->groups) planned += group.weights.size();
    EXPECT_EQ(budget->Plan(*model).size(), planned);
  }
  // The most that was reached can be asked for, the impossible not.
  const auto near = MeasureBitBudget(*model, {.kl = 10 * last}, ids, pool, go_on);
  ASSERT_TRUE(near) << near.error().message;
  EXPECT_LE(near->measured, 10 * last);
  EXPECT_FALSE(MeasureBitBudget(*model, {.kl = last * 1e-9}, ids, pool, go_on));
  EXPECT_FALSE(MeasureBitBudget(*model, {.bits_per_weight = 0.9 * least}, ids, pool, go_on));
  const auto stop = [](std::string_view, int64_t, int64_t) { return false; };
  const auto stopped = MeasureBitBudget(*model, {.bits_per_weight = 16}, ids, pool, stop);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kInterrupted);
}

INSTANTIATE_TEST_SUITE_P(BitBudget, OfModels,
                         testing::Values("llama", "gemma", "lfm2", "qwen3-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return c == '-'; });
                           return name;
                         });

TEST(BitBudget, IsShownAsAPageThatNeedsNothingElse) {
  BitBudget budget{.groups = RandomGroups(3), .frontier = {}};
  budget.frontier = FrontierOf(budget.groups);
  budget.elements = 2000;
  budget.groups[0].name = "<script>";
  const std::string page = BitBudgetHtml(budget, "a & b");
  EXPECT_EQ(page.find("<script>"), std::string::npos);
  EXPECT_EQ(page.find("http"), page.find("http-equiv"));
  EXPECT_NE(page.find("a &amp; b"), std::string::npos);
  EXPECT_NE(page.find("</svg>"), std::string::npos);
  EXPECT_NE(FrontierSvg(budget, true).find("<style>"), std::string::npos);
}

}  // namespace
}  // namespace lockstep

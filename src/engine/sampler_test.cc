// Replays tests/golden/sampling/steps: single decoding steps of transformers.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/logits_processors.h"
#include "engine/portable_math.h"
#include "engine/sampling_goldens.h"

namespace lockstep {
namespace {

std::set<int> Ids(const Json& list) {
  std::set<int> ids;
  for (const Json& id : list) ids.insert(id.get<int>());
  return ids;
}

TEST(LogitsProcessors, AgreeWithTransformersOnEveryGoldenStep) {
  for (const auto& folder : SamplingFolders()) {
    const GoldenTensors tensors(folder / "steps.safetensors");
    const Json steps = ReadJsonFile(folder / "steps.json")["steps"];
    int compared = 0, refused = 0, tied = 0, draws = 0;
    for (const Json& step : steps) {
      const std::string id = step["id"];
      SCOPED_TRACE(id);
      const GenerationConfig config = GoldenConfig(step["config"]);
      std::vector<float> scores = tensors.Get("in." + step["logits"].get<std::string>());
      const auto ids = step["ids"].get<std::vector<int32_t>>();
      ProcessLogits(config, ids, step["prompt_len"], scores);
      if (step.contains("policy")) {
        EXPECT_FALSE(Argmax(scores));
        EXPECT_FALSE(InverseCdf(scores, 0.5));
        ++refused;
        continue;
      }
      const std::set<int> fragile = Ids(step.value("fragile", Json::array()));
      std::set<int> interchangeable;
      if (step.contains("tie_group")) {
        const Json& group = step["tie_group"];
        interchangeable = Ids(group["tied"]);
        for (const int kept : Ids(group["must_keep"])) EXPECT_TRUE(std::isfinite(scores[kept]));
        int keeps = 0;
        for (const int t : interchangeable) keeps += std::isfinite(scores[t]) ? 1 : 0;
        EXPECT_EQ(keeps, group["keep_of_tied"].get<int>());
        ++tied;
      }
      const std::vector<float> expected = tensors.Get("out." + id);
      ASSERT_EQ(scores.size(), expected.size());
      size_t allowed = 0;
      for (size_t i = 0; i < scores.size(); ++i) {
        allowed += scores[i] > -INFINITY ? 1 : 0;
        if (fragile.count(static_cast<int>(i)) || interchangeable.count(static_cast<int>(i)))
          continue;
        // Renormalising over tied survivors is the same sum whichever survive.
        ASSERT_TRUE(SameScore(scores[i], expected[i]))
            << "token " << i << ": " << scores[i] << " but transformers has " << expected[i];
      }
      if (fragile.empty()) {
        EXPECT_EQ(allowed, step["n_allowed"].get<size_t>());
      }
      ++compared;
      if (!step["greedy"].is_null() && interchangeable.empty() && fragile.empty()) {
        const auto greedy = Argmax(scores);
        ASSERT_TRUE(greedy) << greedy.error().message;
        EXPECT_EQ(*greedy, step["greedy"].get<int32_t>());
      }
      if (!fragile.empty() || !interchangeable.empty()) continue;
      for (const Json& draw : step.value("icdf", Json::array())) {
        const auto got = InverseCdf(scores, draw[0]);
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_EQ(*got, draw[1].get<int32_t>()) << "u = " << draw[0];
        ++draws;
      }
    }
    EXPECT_GT(compared, 500) << folder;
    EXPECT_GT(refused, 10) << folder;
    EXPECT_GT(tied, 5) << folder;
    EXPECT_GT(draws, 500) << folder;
  }
}

TEST(LogitsProcessors, KeepAsManyTokensAsBeamSearchAsks) {
  for (const auto& folder : SamplingFolders()) {
    const GoldenTensors tensors(folder / "steps.safetensors");
    const Json steps = ReadJsonFile(folder / "steps.json")["min_tokens_to_keep"];
    EXPECT_GT(steps.size(), 10u);
    for (const Json& step : steps) {
      SCOPED_TRACE(step["id"].get<std::string>());
      std::vector<float> scores = tensors.Get("in." + step["logits"].get<std::string>());
      ProcessLogits(GoldenConfig(step["config"]), {}, 0, scores,
                    step["config"]["min_tokens_to_keep"]);
      std::set<int> allowed;
      for (size_t i = 0; i < scores.size(); ++i)
        if (scores[i] > -INFINITY) allowed.insert(static_cast<int>(i));
      EXPECT_EQ(allowed.size(), step["n_allowed"].get<size_t>());
      // Among equal logits, which ones survive is an accident of torch.sort.
      if (!step.value("ties_in_input", false)) {
        EXPECT_EQ(allowed, Ids(step["allowed"]));
      }
    }
  }
}

TEST(Sampler, TheSameSeedGivesTheSameDrawsEverywhere) {
  // Fixed for good: a change of these numbers changes every seeded text.
  EXPECT_EQ(UniformDraw(0, 0), 0x1.4e0dba5e9a32fp-1);
  EXPECT_EQ(UniformDraw(42, 0), 0x1.5f87eae99441cp-2);
  EXPECT_EQ(UniformDraw(42, 1), 0x1.f49f28ab33f20p-1);
  EXPECT_NE(UniformDraw(0, 0), UniformDraw(0, 1));
  EXPECT_NE(UniformDraw(0, 0), UniformDraw(1, 0));
  double sum = 0, squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = UniformDraw(42, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 1.0 / 2, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
}

TEST(Sampler, DrawsDependOnThePositionNotOnWhatWasDrawnBefore) {
  GenerationConfig config;
  config.do_sample = true;
  config.seed = 7;
  const std::vector<float> logits(50, 0.0f);
  Sampler first(config, 1), second(config, 1);
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  for (size_t n = 1; n < ids.size(); ++n) ASSERT_TRUE(first.Next(logits, std::span(ids).first(n)));
  const auto a = first.Next(logits, ids), b = second.Next(logits, ids);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, *b);
}

TEST(PortableMath, IsWithinABitOfTheLibrary) {
  for (double x = -700; x < 700; x += 0.37) {
    EXPECT_NEAR(PortableExp(x) / std::exp(x), 1, 1e-15) << x;
  }
  for (double x = 1e-300; x < 1e300; x *= 1.7) {
    EXPECT_NEAR(PortableLog(x), std::log(x), 1e-15 * std::max(1.0, std::fabs(std::log(x)))) << x;
  }
  EXPECT_EQ(PortableExp(-INFINITY), 0);
  EXPECT_EQ(PortableExp(0), 1);
  EXPECT_EQ(PortableLog(1), 0);
}

}  // namespace
}  // namespace lockstep

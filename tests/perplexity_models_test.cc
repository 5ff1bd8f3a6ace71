// The perplexity of real models, by engine and reference on the same weights, where somebody has
// them (LOCKSTEP_MODELS). The small checkpoints are measure/perplexity_test.cc's.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "measure/perplexity.h"
#include "model/text_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Models() {
  std::vector<std::string> found;
  const fs::path folder = LOCKSTEP_MODELS;
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"})
    if (!folder.empty() && fs::exists(folder / name)) found.emplace_back(name);
  return found;
}

class RealModel : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RealModel);

TEST_P(RealModel, TheEnginesPerplexityIsTheReferences) {
  const auto model = LoadModel(fs::path(LOCKSTEP_MODELS) / GetParam());
  ASSERT_TRUE(model) << model.error().message;
  const auto text = LoadTextModel(model->checkpoint);
  ASSERT_TRUE(text) << text.error().message;
  const auto licence = ReadTextFile(fs::path(LOCKSTEP_SOURCE_DIR) / "LICENSE");
  ASSERT_TRUE(licence);
  const auto ids =
      EncodeForPerplexity(*text->tokenizer, licence->substr(0, 1000), model->spec.tokens.bos);
  ASSERT_TRUE(ids) << ids.error().message;
  const auto windows = CutIntoWindows(static_cast<int64_t>(ids->ids.size()), 64, 0);
  ASSERT_TRUE(windows) << windows.error().message;
  ThreadPool pool(AvailableCores());
  const auto reference = ReferenceLogits(*model, pool);
  const auto engine = EngineLogits(*model, {.activations = Activations::kF32});
  ASSERT_TRUE(engine) << engine.error().message;
  const auto score = ScoreText(**engine, reference.get(), *ids, *windows, pool);
  ASSERT_TRUE(score) << score.error().message;
  // Logits of these models reach 20 to 40, and are within 2e-4 of the largest (docs/numerics.md); a
  // log-probability moves by at most twice what a logit does.
  constexpr double kBound = 2 * 2e-4 * 40;
  EXPECT_LE(*score->divergence->max_logit_difference, kBound / 2);
  EXPECT_NEAR(score->model.loss.mean, score->against->loss.mean, kBound);
  EXPECT_LE(score->divergence->max_kl, kBound * kBound);
  RecordProperty("loss_difference",
                 fmt::format("{:.1e}", score->model.loss.mean - score->against->loss.mean));
}

INSTANTIATE_TEST_SUITE_P(, RealModel, testing::ValuesIn(Models()), [](const auto& info) {
  return info.param.starts_with("Smol") ? "SmolLM2" : "Gemma3";
});

}  // namespace
}  // namespace lockstep

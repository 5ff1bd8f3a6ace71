#include "measure/model_work.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/model.h"
#include "spec/weights.h"

namespace lockstep {
namespace {

Model Golden(const char* name) {
  auto model = LoadModel(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models" / name);
  EXPECT_TRUE(model) << model.error().message;
  return *std::move(model);
}

// The sizes that the configuration states, multiplied out.
TEST(ModelWork, OfADenseModelIsItsMatrices) {
  const Model model = Golden("llama");
  const auto& attention = std::get<AttentionSpec>(model.spec.layers[0].mixer);
  const int64_t hidden = model.spec.embedding.hidden_size;
  const int64_t q = attention.num_attention_heads * attention.head_dim,
                kv = attention.num_key_value_heads * attention.head_dim;
  const int64_t mlp = 3 * std::get<MlpSpec>(model.spec.layers[0].mlp).intermediate_size;
  const auto layers = static_cast<int64_t>(model.spec.layers.size());
  const ModelWork work = WorkOf(PlanLayout(model.spec, model.weights), Activations::kF32);
  EXPECT_EQ(work.layers.int8_macs, 0);
  EXPECT_EQ(work.layers.f32_macs, static_cast<double>(layers * hidden * (2 * q + 2 * kv + mlp)));
  EXPECT_EQ(work.head.f32_macs, static_cast<double>(hidden * model.spec.embedding.vocab_size));
  EXPECT_FALSE(work.experts);
  // The same products, of another kind: its weights are bf16.
  EXPECT_EQ(WorkOf(PlanLayout(model.spec, model.weights), Activations::kInt8).layers.bf16_macs,
            work.layers.f32_macs);
}

TEST(ModelWork, OfExpertsCountsTheChosen) {
  const Model model = Golden("mixtral");
  const ModelWork work = WorkOf(PlanLayout(model.spec, model.weights), Activations::kF32);
  EXPECT_TRUE(work.experts);
  double expected = 0;
  for (const WeightSlot& slot : RequiredWeights(model.spec)) {
    if (slot.id.part != Part::kWeight || slot.rows == 1) continue;
    if (slot.id.role == Role::kEmbedTokens || slot.id.role == Role::kLmHead) continue;
    const auto& moe = std::get<MoeSpec>(model.spec.layers[0].mlp);
    const double share = slot.id.expert < 0 ? 1
                                            : static_cast<double>(moe.num_experts_per_tok) /
                                                  static_cast<double>(moe.num_experts);
    expected += share * static_cast<double>(slot.rows * slot.cols);
  }
  EXPECT_DOUBLE_EQ(work.layers.f32_macs, expected);
}

TEST(MatrixWork, ItsShortestTimeAddsWhatEachPeakAllows) {
  const MatrixWork work{.int8_macs = 100, .bf16_macs = 30, .f32_macs = 10};
  EXPECT_DOUBLE_EQ(work.SecondsAtPeak({.int8_ops = 100, .f32_ops = 10, .bf16_ops = 20}), 7);
  EXPECT_DOUBLE_EQ(work.ops(), 280);
}

}  // namespace
}  // namespace lockstep

#include "spec/ledger.h"

#include <gtest/gtest.h>

#include <numeric>

#include "spec/random_spec.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

ModelSpec Gpt2Small() {
  ModelSpec spec;
  spec.architecture = "gpt2";
  spec.max_position_embeddings = 1024;
  spec.embedding = {.vocab_size = 50257, .hidden_size = 768, .positions = LearnedPositions{1024}};
  const NormSpec norm{.kind = NormKind::kLayer, .eps = 1e-5, .bias = true};
  LayerSpec layer{.mixer_pre_norm = norm, .mlp_pre_norm = norm};
  layer.mixer = AttentionSpec{.num_attention_heads = 12,
                              .num_key_value_heads = 12,
                              .head_dim = 64,
                              .q_bias = true,
                              .k_bias = true,
                              .v_bias = true,
                              .o_bias = true};
  layer.mlp = MlpSpec{.intermediate_size = 3072,
                      .gated = false,
                      .activation = Activation::kGeluTanh,
                      .up_bias = true,
                      .down_bias = true};
  spec.layers.assign(12, layer);
  spec.final_norm = norm;
  spec.lm_head.tied = true;
  return spec;
}

TEST(Ledger, Gpt2SmallHas124439808Parameters) {
  ASSERT_TRUE(Validate(Gpt2Small()));
  const auto ledger = ComputeLedger(Gpt2Small(), {.context = 1024});
  ASSERT_TRUE(ledger) << ledger.error().message;
  EXPECT_EQ(ledger->total_parameters, 124439808);
  EXPECT_EQ(ledger->active_parameters, 124439808);
  EXPECT_EQ(ledger->parameters[size_t(LedgerPart::kEmbedding)], 50257 * 768);
  EXPECT_EQ(ledger->parameters[size_t(LedgerPart::kPositions)], 1024 * 768);
  EXPECT_EQ(ledger->parameters[size_t(LedgerPart::kMixer)], 12 * (4 * 768 * 768 + 4 * 768));
  EXPECT_EQ(ledger->parameters[size_t(LedgerPart::kMlp)], 12 * (2 * 768 * 3072 + 3072 + 768));
  EXPECT_EQ(ledger->parameters[size_t(LedgerPart::kNorms)], 25 * 2 * 768);
  EXPECT_EQ(ledger->parameters[size_t(LedgerPart::kHead)], 0);
}

TEST(Ledger, Gpt2SmallCachesKeysAndValuesOfEveryHead) {
  const auto ledger =
      ComputeLedger(Gpt2Small(), {.context = 1000, .batch = 3, .kv_element_size = 2});
  ASSERT_TRUE(ledger);
  EXPECT_EQ(ledger->kv_cache_full, int64_t{2} * 12 * 768 * 1000 * 3 * 2);
  EXPECT_EQ(ledger->kv_cache_windowed, ledger->kv_cache_full);
  EXPECT_EQ(ledger->mla_latent, 0);
  EXPECT_EQ(ledger->conv_state, 0);
  EXPECT_EQ(ledger->activations, int64_t{4} * 1000 * (3 * 768 + 2 * 3072));
  EXPECT_EQ(ledger->logits_last, int64_t{4} * 3 * 50257);
  EXPECT_EQ(ledger->logits_all, int64_t{4} * 3 * 50257 * 1000);
}

TEST(Ledger, CountsEachKindOfLayer) {
  ModelSpec spec = Gpt2Small();
  spec.layers.resize(4);
  std::get<AttentionSpec>(spec.layers[1].mixer).sliding_window = 100;
  spec.layers[2].mixer = MlaSpec{.num_attention_heads = 4,
                                 .kv_lora_rank = 32,
                                 .qk_nope_head_dim = 16,
                                 .qk_rope_head_dim = 8,
                                 .v_head_dim = 24,
                                 .rope = {.theta = 10000, .rotary_dim = 8}};
  spec.layers[3].mixer = ShortConvSpec{.kernel_size = 3};
  MoeSpec moe{.num_experts = 8, .num_experts_per_tok = 2, .expert = {.intermediate_size = 64}};
  moe.shared_expert = SharedExpertSpec{.mlp = {.intermediate_size = 128}};
  spec.layers[3].mlp = moe;
  ASSERT_TRUE(Validate(spec)) << Validate(spec).error().message;
  const auto ledger =
      ComputeLedger(spec, {.context = 1000, .batch = 2, .kv_element_size = 4, .prefill = 10});
  ASSERT_TRUE(ledger);
  const int64_t attention = 2 * 768;
  const int64_t mla = 4 * (16 + 8 + 24);
  EXPECT_EQ(ledger->kv_cache_full, 8 * 1000 * (2 * attention + mla));
  EXPECT_EQ(ledger->kv_cache_windowed, 8 * (1000 * (attention + mla) + 100 * attention));
  EXPECT_EQ(ledger->mla_latent, 8 * 1000 * (32 + 8));
  EXPECT_EQ(ledger->conv_state, 8 * 768 * 2);
  EXPECT_EQ(ledger->activations, 4 * 10 * (3 * 768 + 2 * 3072));
  EXPECT_EQ(ledger->total_parameters - ledger->active_parameters, 6 * 3 * 64 * 768);
}

TEST(Ledger, PartsAddUpAndAWindowNeverCostsMore) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto ledger = ComputeLedger(RandomSpec(seed), {.context = 64, .batch = 2});
    ASSERT_TRUE(ledger) << "seed " << seed;
    EXPECT_EQ(std::accumulate(ledger->parameters.begin(), ledger->parameters.end(), int64_t{0}),
              ledger->total_parameters);
    EXPECT_LE(ledger->active_parameters, ledger->total_parameters);
    EXPECT_GT(ledger->active_parameters, 0);
    EXPECT_LE(ledger->kv_cache_windowed, ledger->kv_cache_full);
    EXPECT_LE(ledger->logits_last, ledger->logits_all);
  }
}

TEST(Ledger, RefusesRequestsThatCannotBe) {
  EXPECT_EQ(ComputeLedger(Gpt2Small(), {.context = 0}).error().message,
            "context: expected a number of at least 1, found 0");
  EXPECT_FALSE(ComputeLedger(Gpt2Small(), {.context = 1, .batch = 0}));
  EXPECT_FALSE(ComputeLedger(Gpt2Small(), {.context = 1, .prefill = -1}));
  const auto huge = ComputeLedger(Gpt2Small(), {.context = INT64_MAX, .batch = 2});
  ASSERT_FALSE(huge);
  EXPECT_NE(huge.error().message.find("below 2^63"), std::string::npos);
}

TEST(Ledger, PrintsCountsInGroups) {
  const std::string text = Describe(*ComputeLedger(Gpt2Small(), {.context = 1024}));
  EXPECT_NE(text.find("124,439,808"), std::string::npos);
  EXPECT_NE(text.find("75,497,472     72.00 MiB"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep

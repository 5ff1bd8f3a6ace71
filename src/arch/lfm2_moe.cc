// LFM2-MoE: short convolutions and attention in turn, experts after the first layers.
// transformers: models/lfm2_moe.
#include "arch/lfm2.h"

namespace lockstep {
namespace {

struct Feeds {
  MlpSpec dense;
  MoeSpec moe;
  int64_t num_dense_layers = 0;
};

void SetFeeds(const Feeds& feeds, ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (static_cast<int64_t>(i) < feeds.num_dense_layers) {
      spec.layers[i].mlp = feeds.dense;
    } else {
      spec.layers[i].mlp = feeds.moe;
    }
  }
}

Result<Feeds> ParseFeeds(HfConfig& config) {
  Feeds feeds;
  LS_TRY(feeds.num_dense_layers, config.Get<int64_t>("num_dense_layers", 2));
  if (feeds.num_dense_layers < 0) return config.Bad("num_dense_layers", "0 or more");
  LS_TRY(feeds.dense.intermediate_size, config.GetSize("intermediate_size", 7168));
  MoeSpec& moe = feeds.moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_experts"}, 32));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 4));
  LS_TRY(moe.expert.intermediate_size, config.GetSize("moe_intermediate_size", 1792));
  // Lfm2MoeTopKRouter
  moe.router.scoring = RouterScoring::kSigmoidThenTopK;
  LS_TRY(moe.router.selection_bias, config.Get<bool>("use_expert_bias", true));
  LS_TRY(moe.router.normalize_top_k, config.Get<bool>("norm_topk_prob", true));
  if (moe.router.normalize_top_k) moe.router.normalize_epsilon = 1e-6;
  LS_TRY(moe.router.routed_scaling.value, config.Get<double>("routed_scaling_factor", 1));
  return feeds;
}

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(ModelSpec spec, ParseLfm2(config, {.common = {.vocab_size = 65536,
                                                       .hidden_size = 2048,
                                                       .tie_word_embeddings = true,
                                                       .max_position_embeddings = 128000,
                                                       .bos_token_id = 1,
                                                       .eos_token_id = 2,
                                                       .pad_token_id = 0}}));
  LS_TRY(const Feeds feeds, ParseFeeds(config));
  SetFeeds(feeds, spec);
  return spec;
}

Result<ModelSpec> BuildGguf(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufLfm2(config));
  Feeds feeds;
  LS_TRY(feeds.num_dense_layers, config.Get<int64_t>("leading_dense_block_count", 0));
  if (feeds.num_dense_layers < 0) return config.Bad("leading_dense_block_count", "0 or more");
  LS_TRY(feeds.dense.intermediate_size, config.RequireSize("feed_forward_length"));
  LS_TRY(feeds.moe, ParseGgufMoe(config, {.scoring = RouterScoring::kSigmoidThenTopK,
                                          .normalize_top_k = true,
                                          .normalize_epsilon = 1e-6}));
  feeds.moe.router.selection_bias =
      config.HasTensor(fmt::format("blk.{}.exp_probs_b.bias", feeds.num_dense_layers));
  SetFeeds(feeds, spec);
  return spec;
}

constexpr TensorRule kHfExpertRules[] = {
    {.role = Role::kRouter, .name = "model.layers.{layer}.feed_forward.gate"},
    {.role = Role::kRouterSelectionBias,
     .name = "model.layers.{layer}.feed_forward.expert_bias",
     .suffix = TensorSuffix::kBare},
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.feed_forward.experts.{expert}.w1"},
    {.role = Role::kExpertUpProj, .name = "model.layers.{layer}.feed_forward.experts.{expert}.w3"},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.feed_forward.experts.{expert}.w2"},
    // As transformers 5's modules hold the experts.
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.feed_forward.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.feed_forward.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.feed_forward.experts.down_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true},
};
constexpr auto kHfRules = JoinRules(kHfLfm2Rules, kHfExpertRules);
constexpr auto kGgufRules = JoinRules(kGgufLfm2Rules, kGgufDecoderRules, kGgufAttentionRules,
                                      kGgufDenseMlpRules, kGgufExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "lfm2_moe",
     .class_name = "Lfm2MoeForCausalLM",
     .build = BuildHf,
     .tensors = kHfRules,
     .gguf = "lfm2moe"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "lfm2moe", .build = BuildGguf, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

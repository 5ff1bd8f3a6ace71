// GraniteMoE: four multipliers, experts weighed by a softmax over the chosen logits.
// transformers: models/granitemoe.
#include "arch/decoder.h"

namespace lockstep {
namespace {

struct Multipliers {
  double embedding = 1;
  double attention = 1;
  double residual = 1;
  double logits = 1;  // a divisor
};

void Apply(const Multipliers& multipliers, const MoeSpec& moe, ModelSpec& spec) {
  spec.embedding.scale.value = multipliers.embedding;
  spec.lm_head.logit_scale = {.value = multipliers.logits, .divide = true};
  for (LayerSpec& layer : spec.layers) {
    AttentionOf(layer).query_scale.value = multipliers.attention;
    layer.residual.value = multipliers.residual;
    layer.mlp = moe;
  }
}

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(ModelSpec spec, ParseHfDecoder(config, {.common = {.vocab_size = 32000,
                                                            .hidden_size = 4096,
                                                            .max_position_embeddings = 2048,
                                                            .bos_token_id = 1,
                                                            .eos_token_id = 2},
                                                 .heads = {.num_attention_heads = 32},
                                                 .num_layers = 32}));
  Multipliers multipliers;
  LS_TRY(multipliers.embedding, GetPositive(config, "embedding_multiplier", 1));
  LS_TRY(multipliers.attention, GetPositive(config, "attention_multiplier", 1));
  LS_TRY(multipliers.residual, GetPositive(config, "residual_multiplier", 1));
  LS_TRY(multipliers.logits, GetPositive(config, "logits_scaling", 1));
  MoeSpec moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_local_experts"}, 8));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 2));
  LS_TRY(moe.expert.intermediate_size, config.GetSize("intermediate_size", 11008));
  LS_TRY(moe.expert.activation, ParseActivation(config, "hidden_act", "silu"));
  moe.router.scoring = RouterScoring::kTopKThenSoftmax;
  Apply(multipliers, moe, spec);
  LS_TRY(const bool bias, config.Get<bool>("attention_bias", false));
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = AttentionOf(layer);
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
  }
  return spec;
}

Result<ModelSpec> BuildGguf(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufDecoder(config, {}));
  LS_TRY(MoeSpec moe, ParseGgufMoe(config, {.scoring = RouterScoring::kTopKThenSoftmax}));
  LS_TRY(const int64_t shared, config.GetSize("expert_shared_feed_forward_length", 0));
  if (shared > 0) moe.shared_expert = SharedExpertSpec{.mlp = {.intermediate_size = shared}};
  Multipliers multipliers;
  LS_TRY(multipliers.embedding, GetGgufPositive(config, "embedding_scale", 1));
  LS_TRY(multipliers.attention,
         GetGgufPositive(config, "attention.scale", AttentionOf(spec.layers[0]).query_scale.value));
  LS_TRY(multipliers.residual, GetGgufPositive(config, "residual_scale", 1));
  LS_TRY(multipliers.logits, GetGgufPositive(config, "logit_scale", 1));
  Apply(multipliers, moe, spec);
  // llama.cpp reads this key as a switch for Granite: false is a model without RoPE.
  LS_TRY(const bool rope, config.Get<bool>("rope.scaling.finetuned", true));
  if (!rope)
    for (LayerSpec& layer : spec.layers) AttentionOf(layer).rope.reset();
  return spec;
}

constexpr TensorRule kExpertRules[] = {
    {.role = Role::kRouter, .name = "model.layers.{layer}.block_sparse_moe.router.layer"},
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.block_sparse_moe.input_linear",
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.block_sparse_moe.input_linear",
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.block_sparse_moe.output_linear",
     .stacked_experts = true},
    // The names of transformers 5's modules; it saves the older ones.
    {.role = Role::kRouter, .name = "model.layers.{layer}.block_sparse_moe.router"},
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.block_sparse_moe.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.block_sparse_moe.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.block_sparse_moe.experts.down_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true},
};
constexpr auto kHfRules = JoinRules(kHfDecoderRules, kHfAttentionRules, kExpertRules);
constexpr auto kGgufRules = JoinRules(kGgufDecoderRules, kGgufPairedAttentionRules,
                                      kGgufExpertRules, kGgufSharedExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "granitemoe",
     .class_name = "GraniteMoeForCausalLM",
     .build = BuildHf,
     .tensors = kHfRules,
     .gguf = "granitemoe"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "granitemoe", .build = BuildGguf, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

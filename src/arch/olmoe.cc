// OLMoE: norms over the whole of q and of k, an optional clip after them. transformers:
// models/olmoe.
#include "arch/decoder.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(ModelSpec spec, ParseHfDecoder(config, {.common = {.vocab_size = 50304,
                                                            .hidden_size = 2048,
                                                            .max_position_embeddings = 4096,
                                                            .eos_token_id = 50279,
                                                            .pad_token_id = 1},
                                                 .heads = {.num_attention_heads = 16},
                                                 .num_layers = 16,
                                                 .default_eps = 1e-5}));
  LS_TRY(const bool bias, config.Get<bool>("attention_bias", false));
  LS_TRY(const std::optional<double> clip, config.Find<double>("clip_qkv"));
  if (clip && *clip <= 0) return config.Bad("clip_qkv", "a number above 0");
  MoeSpec moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_experts", "num_local_experts"}, 64));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 8));
  LS_TRY(moe.expert.intermediate_size, config.GetSize("intermediate_size", 2048));
  LS_TRY(moe.expert.activation, ParseActivation(config, "hidden_act", "silu"));
  LS_TRY(moe.router.normalize_top_k, config.Get<bool>("norm_topk_prob", false));
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = AttentionOf(layer);
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
    attention.q_norm = attention.k_norm = spec.final_norm;
    attention.qk_norm_scope = QkNormScope::kProjection;
    attention.clip_qkv = clip;
    layer.mlp = moe;
  }
  return spec;
}

Result<ModelSpec> BuildGguf(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufDecoder(config, {}));
  LS_TRY(const MoeSpec moe, ParseGgufMoe(config, {}));
  LS_TRY(const double clip, GetGgufPositive(config, "attention.clamp_kqv", 0));
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = AttentionOf(layer);
    attention.q_norm = attention.k_norm = spec.final_norm;
    attention.qk_norm_scope = QkNormScope::kProjection;
    if (clip > 0) attention.clip_qkv = clip;
    layer.mlp = moe;
  }
  return spec;
}

constexpr auto kHfRules =
    JoinRules(kHfDecoderRules, kHfAttentionRules, kHfQwenExpertRules, kHfStackedExpertRules);
constexpr auto kGgufRules = JoinRules(kGgufDecoderRules, kGgufAttentionRules, kGgufExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "olmoe",
     .class_name = "OlmoeForCausalLM",
     .build = BuildHf,
     .tensors = kHfRules,
     .gguf = "olmoe"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "olmoe", .build = BuildGguf, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

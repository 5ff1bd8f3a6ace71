// GLM (GLM-4-9B) and GLM-4 (GLM-4-0414; transformers: models/glm, models/glm4): half of each head
// turns, neighbouring elements together; the gate is fused into the way up. GLM-4 adds norms behind
// both halves.
#include "arch/dense.h"

namespace lockstep {
namespace {

Result<DecoderFacts> ParseGlm(HfConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseDense(config, {.common = {.max_position_embeddings = 131072, .pad_token_id = 151329},
                             .heads = {.num_key_value_heads = 2, .head_dim = 128},
                             .eps = 1.5625e-07,
                             .rope = {.partial_rotary = true,
                                      .default_partial_rotary_factor = 0.5,
                                      .layout = RopeLayout::kInterleaved}}));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, true, /*with_o=*/false, decoder.attention));
  if (decoder.spec.tokens.eos.empty()) decoder.spec.tokens.eos = {151329, 151336, 151338};
  return decoder;
}

Result<ModelSpec> BuildGlm(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGlm(config));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildGlm4(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGlm(config));
  decoder.layer.mixer_post_norm = decoder.layer.mlp_post_norm = decoder.spec.final_norm;
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildGlm4Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseGgufDense(config, {.rope = {.layout = RopeLayout::kInterleaved}}));
  decoder.layer.mixer_post_norm = decoder.layer.mlp_post_norm = decoder.spec.final_norm;
  return Repeat(std::move(decoder));
}

constexpr auto kHfGlmTensors = JoinRules(kHfDecoderRules, kHfAttentionRules, kHfFusedMlpRules);
// post_attention_layernorm is the norm before the MLP, as in Llama, in spite of the two posts.
constexpr TensorRule kHfPostNormRules[] = {
    {.role = Role::kMixerPostNorm, .name = "model.layers.{layer}.post_self_attn_layernorm"},
    {.role = Role::kMlpPostNorm, .name = "model.layers.{layer}.post_mlp_layernorm"},
};
constexpr auto kHfGlm4Tensors =
    JoinRules(kHfDecoderRules, kHfPostNormRules, kHfAttentionRules, kHfFusedMlpRules);
constexpr auto kGgufGlm4Tensors =
    JoinRules(kGgufDecoderRules, kGgufPostNormRules, kGgufAttentionRules, kGgufFusedQkvRules,
              kGgufFusedMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "glm",
     .class_name = "GlmForCausalLM",
     .build = BuildGlm,
     .tensors = kHfGlmTensors},
    {.model_type = "glm4",
     .class_name = "Glm4ForCausalLM",
     .build = BuildGlm4,
     .tensors = kHfGlm4Tensors,
     .gguf = "glm4"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "glm4", .build = BuildGlm4Gguf, .tensors = kGgufGlm4Tensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

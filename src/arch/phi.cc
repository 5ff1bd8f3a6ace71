// Phi (1, 1.5, 2) and Phi-3 (also 3.5 and 4; transformers: models/phi, models/phi3).
#include "arch/dense.h"

namespace lockstep {
namespace {

// Phi: both halves read one LayerNorm (no mlp_pre_norm), every matrix has a bias.
void MakeParallel(DecoderFacts& decoder) {
  decoder.layer.wiring = Wiring::kParallel;
  decoder.layer.mlp_pre_norm.reset();
  AttentionSpec& attention = decoder.attention;
  attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = true;
  decoder.mlp.gated = false;
  decoder.mlp.up_bias = decoder.mlp.down_bias = true;
  decoder.spec.lm_head.bias = true;
}

Result<ModelSpec> BuildPhi(HfConfig& config) {
  LS_TRY(
      DecoderFacts decoder,
      ParseDense(config,
                 {.common = {.max_position_embeddings = 2048, .bos_token_id = 1, .eos_token_id = 2},
                  .activation = "gelu_new",
                  .norm = NormKind::kLayer,
                  .eps_key = "layer_norm_eps",
                  .eps = 1e-5,
                  .rope = {.partial_rotary = true, .default_partial_rotary_factor = 0.5}}));
  MakeParallel(decoder);
  LS_TRY(const bool qk_norm, config.Get<bool>("qk_layernorm", false));
  if (qk_norm) decoder.attention.q_norm = decoder.attention.k_norm = decoder.spec.final_norm;
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildPhi3(HfConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseDense(config, {.common = {.max_position_embeddings = 4096,
                                        .bos_token_id = 1,
                                        .eos_token_id = 32000,
                                        .pad_token_id = 32000},
                             .eps = 1e-5,
                             .rope = {.partial_rotary = true,
                                      .default_original_max_position_embeddings = 4096,
                                      .yarn_is_longrope = true}}));
  config.Ignore("original_max_position_embeddings");  // read by ParseRope where it matters
  LS_TRY(decoder.attention.sliding_window, ParseSlidingWindow(config, std::nullopt));
  // transformers' code has no such parts; files state that there are none.
  for (const std::string_view key : {"attention_bias", "mlp_bias", "lm_head_bias"})
    LS_RETURN_IF_ERROR(config.Expect(key, false));
  for (const std::string_view key : {"interpolate_factor", "full_attn_mod"})
    LS_RETURN_IF_ERROR(config.Expect(key, 1));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildPhi2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {.norm = NormKind::kLayer,
                                                       .norm_bias = true,
                                                       .activation = Activation::kGeluTanh}));
  MakeParallel(decoder);
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildPhi3Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  // llama.cpp reads the window and then switches it off with a warning ("Phi SWA is currently
  // disabled"). The model was trained with it and transformers applies it, so it is a fact here.
  LS_TRY(decoder.attention.sliding_window, GgufSlidingWindow(config));
  return Repeat(std::move(decoder));
}

constexpr TensorRule kHfPhiTensors[] = {
    {.role = Role::kEmbedTokens, .name = "model.embed_tokens"},
    {.role = Role::kFinalNorm, .name = "model.final_layernorm"},
    {.role = Role::kLmHead, .name = "lm_head"},
    {.role = Role::kMixerPreNorm, .name = "model.layers.{layer}.input_layernorm"},
    {.role = Role::kQProj, .name = "model.layers.{layer}.self_attn.q_proj"},
    {.role = Role::kKProj, .name = "model.layers.{layer}.self_attn.k_proj"},
    {.role = Role::kVProj, .name = "model.layers.{layer}.self_attn.v_proj"},
    {.role = Role::kOProj, .name = "model.layers.{layer}.self_attn.dense"},
    {.role = Role::kQNorm, .name = "model.layers.{layer}.self_attn.q_layernorm"},
    {.role = Role::kKNorm, .name = "model.layers.{layer}.self_attn.k_layernorm"},
    {.role = Role::kUpProj, .name = "model.layers.{layer}.mlp.fc1"},
    {.role = Role::kDownProj, .name = "model.layers.{layer}.mlp.fc2"},
};

constexpr TensorRule kHfPhi3OwnRules[] = {
    {.role = Role::kQProj, .name = "model.layers.{layer}.self_attn.qkv_proj", .fused = kFusedQkv},
    {.role = Role::kKProj, .name = "model.layers.{layer}.self_attn.qkv_proj", .fused = kFusedQkv},
    {.role = Role::kVProj, .name = "model.layers.{layer}.self_attn.qkv_proj", .fused = kFusedQkv},
    {.role = Role::kOProj, .name = "model.layers.{layer}.self_attn.o_proj"},
};
constexpr auto kHfPhi3Tensors = JoinRules(kHfPhi3OwnRules, kHfDecoderRules, kHfFusedMlpRules);

constexpr auto kGgufPhi2Tensors =
    JoinRules(kGgufFusedQkvRules, kGgufDecoderRules, kGgufAttentionRules, kGgufDenseMlpRules);
constexpr auto kGgufPhi3Tensors =
    JoinRules(kGgufFusedQkvRules, kGgufDecoderRules, kGgufAttentionRules, kGgufFusedMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "phi",
     .class_name = "PhiForCausalLM",
     .build = BuildPhi,
     .tensors = kHfPhiTensors,
     .gguf = "phi2"},
    {.model_type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .build = BuildPhi3,
     .tensors = kHfPhi3Tensors,
     .gguf = "phi3"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "phi2", .build = BuildPhi2Gguf, .tensors = kGgufPhi2Tensors},
    {.architecture = "phi3",
     .build = BuildPhi3Gguf,
     .tensors = kGgufPhi3Tensors,
     .llama_cpp_differs = "llama.cpp takes longrope's long factors at every length when its "
                          "context is longer than the "
                          "original one, and applies no sliding window"},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

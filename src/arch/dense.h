// What the dense families share: a decoder layer as most models have it, read from either kind of
// checkpoint, and the names that most of them give to weights. A family takes a DecoderFacts,
// changes what is special about it and repeats the layer. Used by arch/ only.
#pragma once

#include "arch/decoder.h"

namespace lockstep {

NormSpec LayerNorm(double eps, bool bias);

// A model before its layers are laid out: every layer is `layer` with `attention` and `mlp` in it,
// unless the family says otherwise.
struct DecoderFacts {
  ModelSpec spec;  // without layers
  int64_t num_layers = 0;
  LayerSpec layer;          // norms and wiring: pre-norms before both halves
  AttentionSpec attention;  // with rope
  MlpSpec mlp;
};

// `decoder.layer` with this mixer and `decoder.mlp`.
LayerSpec MakeLayer(const DecoderFacts& decoder, MixerSpec mixer);
// All layers alike.
ModelSpec Repeat(DecoderFacts decoder);
// Layers that differ only in the attention that `attention_of(layer)` gives.
template <typename AttentionOf>
ModelSpec RepeatWith(DecoderFacts decoder, const AttentionOf& attention_of) {
  for (int64_t i = 0; i < decoder.num_layers; ++i)
    decoder.spec.layers.push_back(MakeLayer(decoder, attention_of(i)));
  return std::move(decoder.spec);
}

// --- Hugging Face ---

struct DenseQuery {  // of transformers' configuration class
  CommonDefaults common;
  HeadDefaults heads;
  int64_t num_hidden_layers = 0;  // 0: required
  int64_t intermediate_size = 0;  // 0: required
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  NormKind norm = NormKind::kRms;
  std::string_view eps_key = "rms_norm_eps";  // empty: eps is fixed in the code
  double eps = 1e-6;
  RopeQuery rope;        // head_dim and max_position_embeddings are filled in
  bool one_rope = true;  // false: the family reads its RoPE itself
};
Result<DecoderFacts> ParseDense(HfConfig& config, const DenseQuery& defaults);

// attention_bias: of q, k, v and, where the family has it, o.
Status ParseAttentionBias(HfConfig& config, bool otherwise, bool with_o, AttentionSpec& attention);

// --- GGUF ---

struct GgufDenseQuery {
  NormKind norm = NormKind::kRms;
  bool norm_bias = false;
  double weight_offset = 0;
  bool gated = true;
  Activation activation = Activation::kSilu;
  bool has_rope = true;
  GgufRopeQuery rope;  // head_dim is filled in
};
// Biases are present where layer 0 has one: GGUF states them by the tensor.
Result<DecoderFacts> ParseGgufDense(GgufConfig& config, const GgufDenseQuery& defaults);

// Which layers have a window. attention.sliding_window_pattern: a period, or one bool per layer;
// absent: every layer but each `period`th has one (llama.cpp's set_swa_pattern).
Result<std::vector<bool>> GgufSlidingLayers(GgufConfig& config, int64_t num_layers, int64_t period);
// attention.sliding_window; 0 and absent: none.
Result<std::optional<int64_t>> GgufSlidingWindow(GgufConfig& config);

// --- Names of weights ---

inline constexpr Role kFusedQkv[] = {Role::kQProj, Role::kKProj, Role::kVProj};
inline constexpr Role kFusedGateUp[] = {Role::kGateProj, Role::kUpProj};

// Llama's names, which most families took over.
inline constexpr auto kHfDenseTensors =
    JoinRules(kHfDecoderRules, kHfAttentionRules, kHfDenseMlpRules);

// The gate fused into the way up, the gate's rows first (Phi-3, GLM).
inline constexpr TensorRule kHfFusedMlpRules[] = {
    {.role = Role::kGateProj,
     .name = "model.layers.{layer}.mlp.gate_up_proj",
     .fused = kFusedGateUp},
    {.role = Role::kUpProj, .name = "model.layers.{layer}.mlp.gate_up_proj", .fused = kFusedGateUp},
    {.role = Role::kDownProj, .name = "model.layers.{layer}.mlp.down_proj"},
};

// Gemma-2's names: norms on both sides of each half. post_attention_layernorm is the norm of the
// attention's output here, not the one before the MLP. OLMo-2 has the outer two of them.
inline constexpr TensorRule kHfSandwichRules[] = {
    {.role = Role::kEmbedTokens, .name = "model.embed_tokens"},
    {.role = Role::kFinalNorm, .name = "model.norm"},
    {.role = Role::kLmHead, .name = "lm_head"},
    {.role = Role::kMixerPreNorm, .name = "model.layers.{layer}.input_layernorm"},
    {.role = Role::kMixerPostNorm, .name = "model.layers.{layer}.post_attention_layernorm"},
    {.role = Role::kMlpPreNorm, .name = "model.layers.{layer}.pre_feedforward_layernorm"},
    {.role = Role::kMlpPostNorm, .name = "model.layers.{layer}.post_feedforward_layernorm"},
};
inline constexpr auto kHfSandwichTensors =
    JoinRules(kHfSandwichRules, kHfAttentionRules, kHfDenseMlpRules);

// llama.cpp's names (gguf-py's constants.py).
inline constexpr TensorRule kGgufPostNormRules[] = {
    {.role = Role::kMixerPostNorm, .name = "blk.{layer}.post_attention_norm"},
    {.role = Role::kMlpPostNorm, .name = "blk.{layer}.post_ffw_norm"},
};
inline constexpr TensorRule kGgufFusedQkvRules[] = {
    {.role = Role::kQProj, .name = "blk.{layer}.attn_qkv", .fused = kFusedQkv},
    {.role = Role::kKProj, .name = "blk.{layer}.attn_qkv", .fused = kFusedQkv},
    {.role = Role::kVProj, .name = "blk.{layer}.attn_qkv", .fused = kFusedQkv},
};
// Where the gate has no tensor of its own, ffn_up holds the gate's rows first.
inline constexpr TensorRule kGgufFusedMlpRules[] = {
    {.role = Role::kGateProj, .name = "blk.{layer}.ffn_up", .fused = kFusedGateUp},
    {.role = Role::kUpProj, .name = "blk.{layer}.ffn_up", .fused = kFusedGateUp},
    {.role = Role::kDownProj, .name = "blk.{layer}.ffn_down"},
};
inline constexpr auto kGgufDenseTensors =
    JoinRules(kGgufDecoderRules, kGgufAttentionRules, kGgufDenseMlpRules);
// With Llama's permuted q and k: architectures that llama.cpp rotates in pairs though transformers
// rotates halves.
inline constexpr auto kGgufPairedTensors =
    JoinRules(kGgufDecoderRules, kGgufPairedAttentionRules, kGgufDenseMlpRules);

}  // namespace lockstep

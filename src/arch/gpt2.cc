// GPT-2 (transformers: models/gpt2): learned positions, biases everywhere, one matrix for q, k
// and v.
#include <cmath>

#include "arch/dense.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildGpt2(HfConfig& config) {
  ModelSpec spec;
  const CommonDefaults defaults{.bos_token_id = 50256, .eos_token_id = 50256};
  LS_TRY(spec.architecture, config.Get<std::string>("model_type", "gpt2"));
  LS_TRY(spec.embedding.vocab_size, config.GetSize("vocab_size", 50257));
  LS_TRY(spec.embedding.hidden_size, config.GetSize("n_embd", 768));
  LS_TRY(spec.max_position_embeddings, config.GetSize("n_positions", 1024));
  spec.embedding.positions = LearnedPositions{spec.max_position_embeddings};
  config.Ignore("n_ctx");  // an old name of n_positions; never read
  LS_TRY(spec.lm_head.tied, config.Get<bool>("tie_word_embeddings", true));
  LS_TRY(spec.tokens, ParseTokenIds(config, defaults));
  const int64_t hidden = spec.embedding.hidden_size;

  LS_TRY(const double eps, GetPositive(config, "layer_norm_epsilon", 1e-5));
  LayerSpec layer;
  layer.mixer_pre_norm = layer.mlp_pre_norm = spec.final_norm = LayerNorm(eps, /*bias=*/true);

  AttentionSpec attention;
  LS_TRY(attention.num_attention_heads, config.GetSize("n_head", 12));
  if (hidden % attention.num_attention_heads != 0)
    return config.Bad("n_head", fmt::format("a divisor of n_embd {}", hidden));
  attention.num_key_value_heads = attention.num_attention_heads;
  attention.head_dim = hidden / attention.num_attention_heads;
  attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = true;
  LS_TRY(const bool scaled, config.Get<bool>("scale_attn_weights", true));
  LS_TRY(const bool by_layer, config.Get<bool>("scale_attn_by_inverse_layer_idx", false));
  config.Ignore("reorder_and_upcast_attn");  // the same formula in fp32, which we compute in anyway

  MlpSpec mlp{.gated = false, .up_bias = true, .down_bias = true};
  LS_TRY(mlp.intermediate_size, config.GetSize("n_inner", 4 * hidden));
  LS_TRY(mlp.activation, ParseActivation(config, "activation_function", "gelu_new"));

  LS_TRY(const int64_t num_layers, ParseNumLayers(config, 12, "n_layer"));
  for (int64_t i = 0; i < num_layers; ++i) {
    // scale_attn_by_inverse_layer_idx is a fact of each layer: its scale is divided by i + 1.
    attention.query_scale.value =
        scaled ? 1 / std::sqrt(static_cast<double>(attention.head_dim)) : 1;
    if (by_layer) attention.query_scale.value /= static_cast<double>(i + 1);
    layer.mixer = attention;
    layer.mlp = mlp;
    spec.layers.push_back(layer);
  }
  // Of the classification heads (GPT2DoubleHeadsModel).
  for (const std::string_view key : {"summary_activation", "summary_first_dropout",
                                     "summary_proj_to_labels", "summary_type", "summary_use_proj"})
    config.Ignore(key);
  return spec;
}

Result<ModelSpec> BuildGpt2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {.norm = NormKind::kLayer,
                                                       .norm_bias = true,
                                                       .gated = false,
                                                       .activation = Activation::kGeluTanh,
                                                       .has_rope = false}));
  decoder.spec.embedding.positions = LearnedPositions{decoder.spec.max_position_embeddings};
  config.Ignore("rope.dimension_count");
  return Repeat(std::move(decoder));
}

// transformers writes "transformer.h.0..."; the checkpoints of 2019 have "h.0...". The buffers
// h.*.attn.bias and .masked_bias in those are the causal mask, not weights. Conv1D stores
// [inputs, outputs].
#define LS_GPT2_RULES(prefix)                                                             \
  {.role = Role::kEmbedTokens, .name = prefix "wte"},                                     \
      {.role = Role::kEmbedPositions, .name = prefix "wpe"},                              \
      {.role = Role::kFinalNorm, .name = prefix "ln_f"},                                  \
      {.role = Role::kMixerPreNorm, .name = prefix "h.{layer}.ln_1"},                     \
      {.role = Role::kMlpPreNorm, .name = prefix "h.{layer}.ln_2"},                       \
      {.role = Role::kQProj,                                                              \
       .name = prefix "h.{layer}.attn.c_attn",                                            \
       .transposed = true,                                                                \
       .fused = kFusedQkv},                                                               \
      {.role = Role::kKProj,                                                              \
       .name = prefix "h.{layer}.attn.c_attn",                                            \
       .transposed = true,                                                                \
       .fused = kFusedQkv},                                                               \
      {.role = Role::kVProj,                                                              \
       .name = prefix "h.{layer}.attn.c_attn",                                            \
       .transposed = true,                                                                \
       .fused = kFusedQkv},                                                               \
      {.role = Role::kOProj, .name = prefix "h.{layer}.attn.c_proj", .transposed = true}, \
      {.role = Role::kUpProj, .name = prefix "h.{layer}.mlp.c_fc", .transposed = true},   \
      {.role = Role::kDownProj, .name = prefix "h.{layer}.mlp.c_proj", .transposed = true},

constexpr TensorRule kHfTensors[] = {
    LS_GPT2_RULES("transformer.") LS_GPT2_RULES(""){.role = Role::kLmHead, .name = "lm_head"},
};
#undef LS_GPT2_RULES

// Converters transpose what Conv1D stored.
constexpr TensorRule kGgufOwnRules[] = {
    {.role = Role::kEmbedPositions, .name = "position_embd"},
};
constexpr auto kGgufTensors = JoinRules(kGgufOwnRules, kGgufDecoderRules, kGgufFusedQkvRules,
                                        kGgufAttentionRules, kGgufDenseMlpRules);

constexpr std::string_view kCausalMasks[] = {"h.{layer}.attn.bias", "h.{layer}.attn.masked_bias",
                                             "transformer.h.{layer}.attn.bias",
                                             "transformer.h.{layer}.attn.masked_bias"};
constexpr HfArchitecture kHf[] = {
    {.model_type = "gpt2",
     .class_name = "GPT2LMHeadModel",
     .build = BuildGpt2,
     .tensors = kHfTensors,
     .buffers = kCausalMasks,
     .gguf = "gpt2"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "gpt2", .build = BuildGpt2Gguf, .tensors = kGgufTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

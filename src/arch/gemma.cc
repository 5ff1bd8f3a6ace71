// Gemma, Gemma-2 and Gemma-3 (transformers: models/gemma, gemma2, gemma3): RMSNorm with 1 + w, the
// embedding scaled by sqrt(hidden_size). Of a multimodal Gemma-3 the text part is read.
#include <cmath>

#include "arch/dense.h"

namespace lockstep {
namespace {

// transformers casts the scale to the dtype of the weight it computes in: no rounding in fp32,
// which is the reference. In bf16 it is one of the first things to differ.
void ScaleEmbedding(ModelSpec& spec) {
  spec.embedding.scale.value = std::sqrt(static_cast<double>(spec.embedding.hidden_size));
}

// All norms of the model with 1 + w.
void OffsetNorms(DecoderFacts& decoder) {
  NormSpec& norm = decoder.spec.final_norm;
  norm.weight_offset = 1;
  decoder.layer.mixer_pre_norm = decoder.layer.mlp_pre_norm = norm;
}

// Gemma-2 and 3: norms on both sides of both halves.
void SandwichNorms(DecoderFacts& decoder) {
  OffsetNorms(decoder);
  decoder.layer.mixer_post_norm = decoder.layer.mlp_post_norm = decoder.spec.final_norm;
}

CommonDefaults GemmaDefaults() {
  return {.tie_word_embeddings = true,
          .max_position_embeddings = 8192,
          .bos_token_id = 2,
          .eos_token_id = 1,
          .pad_token_id = 0};
}

Result<ModelSpec> BuildGemma(HfConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseDense(config, {.common = GemmaDefaults(),
                             .heads = {.num_key_value_heads = 16, .head_dim = 256},
                             .activation = "gelu_pytorch_tanh",
                             .eps = 1e-6}));
  // The first files say "gelu" and mean its tanh form; transformers corrects it. hidden_activation,
  // which later files add, is not read by it.
  if (decoder.mlp.activation == Activation::kGelu) decoder.mlp.activation = Activation::kGeluTanh;
  config.Ignore("hidden_activation");
  LS_RETURN_IF_ERROR(config.Expect("use_bidirectional_attention", false));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  ScaleEmbedding(decoder.spec);
  OffsetNorms(decoder);
  return Repeat(std::move(decoder));
}

// What Gemma-2 and 3 read alike, after ParseDense.
Status ParseNewer(HfConfig& config, DecoderFacts& decoder, std::optional<double> attention_softcap,
                  std::optional<double> final_softcap) {
  LS_RETURN_IF_ERROR(config.Expect("use_bidirectional_attention", false));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(const double scalar, GetPositive(config, "query_pre_attn_scalar", 256));
  decoder.attention.query_scale.value = 1 / std::sqrt(scalar);
  LS_TRY(decoder.attention.logit_softcap,
         ParseOptional(config, "attn_logit_softcapping", attention_softcap));
  LS_TRY(decoder.spec.lm_head.logit_softcap,
         ParseOptional(config, "final_logit_softcapping", final_softcap));
  config.Ignore("hidden_act");  // hidden_activation decides
  ScaleEmbedding(decoder.spec);
  SandwichNorms(decoder);
  return {};
}

Result<ModelSpec> BuildGemma2(HfConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseDense(config, {.common = GemmaDefaults(),
                             .heads = {.num_key_value_heads = 4, .head_dim = 256},
                             .activation_key = "hidden_activation",
                             .activation = "gelu_pytorch_tanh",
                             .eps = 1e-6}));
  LS_RETURN_IF_ERROR(ParseNewer(config, decoder, 50, 30));
  LS_TRY(const auto window, ParseSlidingWindow(config, 4096));
  LS_TRY(const auto types,
         FindLayerTypes(config, decoder.num_layers, {"full_attention", "sliding_attention"}));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    // The even layers, counted from 0.
    const bool sliding =
        types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : i % 2 == 0;
    if (sliding) attention.sliding_window = window;
    return attention;
  });
}

Result<ModelSpec> BuildGemma3(HfConfig& config) {
  CommonDefaults common = GemmaDefaults();
  common.max_position_embeddings = 131072;
  // The text part of a multimodal file states only what differs from the class' defaults.
  common.vocab_size = 262208;
  common.hidden_size = 2304;
  LS_TRY(DecoderFacts decoder,
         ParseDense(config,
                    {.common = common,
                     .heads = {.num_attention_heads = 8, .num_key_value_heads = 4, .head_dim = 256},
                     .num_hidden_layers = 26,
                     .intermediate_size = 9216,
                     .activation_key = "hidden_activation",
                     .activation = "gelu_pytorch_tanh",
                     .eps = 1e-6,
                     .one_rope = false}));
  LS_RETURN_IF_ERROR(ParseNewer(config, decoder, std::nullopt, std::nullopt));
  // The class has the key, but Gemma3Attention never passes it on: only the final cap acts.
  if (decoder.attention.logit_softcap) config.ReportUnread("attn_logit_softcapping");
  decoder.attention.logit_softcap.reset();
  decoder.attention.q_norm = decoder.attention.k_norm = decoder.spec.final_norm;
  RopeQuery query{.head_dim = decoder.attention.head_dim,
                  .default_theta = 1000000,
                  .layer_type = "full_attention",
                  .max_position_embeddings = decoder.spec.max_position_embeddings};
  LS_TRY(const RopeSpec full_rope, ParseRope(config, query));
  query.default_theta = 10000;
  query.layer_type = "sliding_attention";
  query.theta_key = "rope_local_base_freq";
  LS_TRY(const RopeSpec sliding_rope, ParseRope(config, query));
  LS_TRY(const auto window, ParseSlidingWindow(config, 4096));
  LS_TRY(const int64_t period, config.GetSize("sliding_window_pattern", 6));
  config.Ignore("_sliding_window_pattern");  // transformers' memory of it beside layer_types
  LS_TRY(const auto types,
         FindLayerTypes(config, decoder.num_layers, {"full_attention", "sliding_attention"}));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    const bool sliding =
        types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : (i + 1) % period != 0;
    attention.rope = sliding ? sliding_rope : full_rope;
    if (sliding) attention.sliding_window = window;
    return attention;
  });
}

Result<ModelSpec> BuildGemma3Multimodal(HfConfig& config) {
  LS_TRY(HfConfig* const text, config.RequireObject("text_config"));
  LS_TRY(ModelSpec spec, BuildGemma3(*text));
  // Both configurations have the key; the outer one is the model's.
  LS_TRY(spec.lm_head.tied, config.Get<bool>("tie_word_embeddings", bool{spec.lm_head.tied}));
  LS_TRY(spec.architecture, config.Get<std::string>("model_type", "gemma3"));
  // generate() stops at the outer ids, where there are any.
  LS_TRY(const TokenIds outer, ParseTokenIds(config, {}));
  if (outer.bos) spec.tokens.bos = outer.bos;
  if (outer.pad) spec.tokens.pad = outer.pad;
  if (!outer.eos.empty()) spec.tokens.eos = outer.eos;
  for (const std::string_view key :  // of the image part
       {"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index",
        "image_token_index"})
    config.Ignore(key);
  return spec;
}

GgufDenseQuery GgufQuery() { return {.weight_offset = 1, .activation = Activation::kGeluTanh}; }

// llama.cpp knows the 27B models by their number of layers: only they scale queries by
// hidden_size / heads instead of head_dim.
void ScaleQueriesOf27B(DecoderFacts& decoder, int64_t layers_of_27b) {
  if (decoder.num_layers != layers_of_27b) return;
  decoder.attention.query_scale.value =
      1 / std::sqrt(static_cast<double>(decoder.spec.embedding.hidden_size) /
                    static_cast<double>(decoder.attention.num_attention_heads));
}

Result<ModelSpec> BuildGemmaGguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, GgufQuery()));
  ScaleEmbedding(decoder.spec);
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildGemma2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, GgufQuery()));
  ScaleEmbedding(decoder.spec);
  SandwichNorms(decoder);
  ScaleQueriesOf27B(decoder, 46);
  LS_TRY(decoder.attention.logit_softcap, GetGgufPositive(config, "attn_logit_softcapping", 50));
  LS_TRY(decoder.spec.lm_head.logit_softcap,
         GetGgufPositive(config, "final_logit_softcapping", 30));
  LS_TRY(const int64_t window, config.GetSize("attention.sliding_window", 4096));
  LS_TRY(const auto sliding, GgufSlidingLayers(config, decoder.num_layers, 2));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    if (sliding[static_cast<size_t>(i)]) attention.sliding_window = window;
    return attention;
  });
}

Result<ModelSpec> BuildGemma3Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, GgufQuery()));
  ScaleEmbedding(decoder.spec);
  SandwichNorms(decoder);
  ScaleQueriesOf27B(decoder, 62);
  decoder.attention.q_norm = decoder.attention.k_norm = decoder.spec.final_norm;
  if (config.FindRaw("final_logit_softcapping") != nullptr) {
    LS_TRY(decoder.spec.lm_head.logit_softcap, config.Get<double>("final_logit_softcapping", 0));
    if (!(*decoder.spec.lm_head.logit_softcap > 0)) decoder.spec.lm_head.logit_softcap.reset();
  }
  LS_TRY(const auto window, GgufSlidingWindow(config));
  LS_TRY(const auto sliding, GgufSlidingLayers(config, decoder.num_layers, 6));
  // The sliding layers have a base of their own, without a key until late 2025, and no scaling.
  LS_TRY(const RopeSpec sliding_rope, ParseGgufRope(config, {.head_dim = decoder.attention.head_dim,
                                                             .freq_base_key = "rope.freq_base_swa",
                                                             .scaled = false}));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    if (window && sliding[static_cast<size_t>(i)]) {
      attention.sliding_window = window;
      attention.rope = sliding_rope;
    }
    return attention;
  });
}

// The text part in a multimodal checkpoint: "language_model.model." as published,
// "model.language_model." as transformers 5 saves it.
#define LS_GEMMA3_RULES(prefix)                                                                 \
  {.role = Role::kEmbedTokens, .name = prefix "embed_tokens"},                                  \
      {.role = Role::kFinalNorm, .name = prefix "norm"},                                        \
      {.role = Role::kMixerPreNorm, .name = prefix "layers.{layer}.input_layernorm"},           \
      {.role = Role::kMixerPostNorm, .name = prefix "layers.{layer}.post_attention_layernorm"}, \
      {.role = Role::kMlpPreNorm, .name = prefix "layers.{layer}.pre_feedforward_layernorm"},   \
      {.role = Role::kMlpPostNorm, .name = prefix "layers.{layer}.post_feedforward_layernorm"}, \
      {.role = Role::kQProj, .name = prefix "layers.{layer}.self_attn.q_proj"},                 \
      {.role = Role::kKProj, .name = prefix "layers.{layer}.self_attn.k_proj"},                 \
      {.role = Role::kVProj, .name = prefix "layers.{layer}.self_attn.v_proj"},                 \
      {.role = Role::kOProj, .name = prefix "layers.{layer}.self_attn.o_proj"},                 \
      {.role = Role::kQNorm, .name = prefix "layers.{layer}.self_attn.q_norm"},                 \
      {.role = Role::kKNorm, .name = prefix "layers.{layer}.self_attn.k_norm"},                 \
      {.role = Role::kGateProj, .name = prefix "layers.{layer}.mlp.gate_proj"},                 \
      {.role = Role::kUpProj, .name = prefix "layers.{layer}.mlp.up_proj"},                     \
      {.role = Role::kDownProj, .name = prefix "layers.{layer}.mlp.down_proj"},
constexpr TensorRule kHfMultimodalTensors[] = {
    LS_GEMMA3_RULES("language_model.model.") LS_GEMMA3_RULES("model.language_model."){
        .role = Role::kLmHead, .name = "language_model.lm_head"},
    {.role = Role::kLmHead, .name = "lm_head"},
};
#undef LS_GEMMA3_RULES

// The converter adds 1 to every norm weight, those of q and k included.
constexpr TensorRule kGgufNormRules[] = {
    {.role = Role::kFinalNorm, .name = "output_norm", .addend = -1},
    {.role = Role::kMixerPreNorm, .name = "blk.{layer}.attn_norm", .addend = -1},
    {.role = Role::kMixerPostNorm, .name = "blk.{layer}.post_attention_norm", .addend = -1},
    {.role = Role::kMlpPreNorm, .name = "blk.{layer}.ffn_norm", .addend = -1},
    {.role = Role::kMlpPostNorm, .name = "blk.{layer}.post_ffw_norm", .addend = -1},
    {.role = Role::kQNorm, .name = "blk.{layer}.attn_q_norm", .addend = -1},
    {.role = Role::kKNorm, .name = "blk.{layer}.attn_k_norm", .addend = -1},
};
constexpr TensorRule kGgufOtherRules[] = {
    {.role = Role::kEmbedTokens, .name = "token_embd"},
    {.role = Role::kLmHead, .name = "output"},
    {.role = Role::kQProj, .name = "blk.{layer}.attn_q"},
    {.role = Role::kKProj, .name = "blk.{layer}.attn_k"},
    {.role = Role::kVProj, .name = "blk.{layer}.attn_v"},
    {.role = Role::kOProj, .name = "blk.{layer}.attn_output"},
};
constexpr auto kGgufTensors = JoinRules(kGgufNormRules, kGgufOtherRules, kGgufDenseMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "gemma",
     .class_name = "GemmaForCausalLM",
     .build = BuildGemma,
     .tensors = kHfDenseTensors,
     .gguf = "gemma"},
    {.model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .build = BuildGemma2,
     .tensors = kHfSandwichTensors,
     .gguf = "gemma2"},
    {.model_type = "gemma3",
     .class_name = "Gemma3ForConditionalGeneration",
     .build = BuildGemma3Multimodal,
     .tensors = kHfMultimodalTensors,
     .gguf = "gemma3"},
    {.model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .build = BuildGemma3,
     .tensors = kHfSandwichTensors,
     .gguf = "gemma3"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "gemma", .build = BuildGemmaGguf, .tensors = kGgufTensors},
    {.architecture = "gemma2", .build = BuildGemma2Gguf, .tensors = kGgufTensors},
    {.architecture = "gemma3", .build = BuildGemma3Gguf, .tensors = kGgufTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

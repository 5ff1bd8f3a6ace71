// Cohere (Command-R) and Cohere-2 (Command-R7B; transformers: models/cohere, cohere2): both halves
// read one LayerNorm without bias, RoPE turns neighbouring elements, logits are scaled.
#include "arch/dense.h"

namespace lockstep {
namespace {

void MakeParallel(DecoderFacts& decoder) {
  decoder.spec.final_norm.bias = false;
  decoder.layer.mixer_pre_norm = decoder.spec.final_norm;
  decoder.layer.mlp_pre_norm.reset();
  decoder.layer.wiring = Wiring::kParallel;
}

Result<DecoderFacts> ParseCohere(HfConfig& config, double default_theta) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = {.tie_word_embeddings = true,
                                                              .max_position_embeddings = 8192,
                                                              .bos_token_id = 5,
                                                              .eos_token_id = 255001,
                                                              .pad_token_id = 0},
                                                   .norm = NormKind::kLayer,
                                                   .eps_key = "layer_norm_eps",
                                                   .eps = 1e-5,
                                                   .rope = {.default_theta = default_theta,
                                                            .layout = RopeLayout::kInterleaved}}));
  MakeParallel(decoder);
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(decoder.spec.lm_head.logit_scale.value, GetPositive(config, "logit_scale", 0.0625));
  // Command-R+ norms q and k with a weight of its own for every head, which no spec can say yet.
  LS_RETURN_IF_ERROR(config.Expect("use_qk_norm", false));
  config.Ignore("model_max_length");  // the tokenizer's
  return decoder;
}

Result<ModelSpec> BuildCohere(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseCohere(config, 500000));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildCohere2(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseCohere(config, 10000));
  LS_TRY(const auto window, ParseSlidingWindow(config, 4096));
  LS_TRY(const int64_t period, config.GetSize("sliding_window_pattern", 4));
  config.Ignore("_sliding_window_pattern");
  LS_TRY(const auto types,
         FindLayerTypes(config, decoder.num_layers, {"full_attention", "sliding_attention"}));
  // Of the training code; what they say is what the architecture always does.
  LS_RETURN_IF_ERROR(config.Expect("order_of_interleaved_layers", "local_attn_first"));
  LS_RETURN_IF_ERROR(config.Expect("position_embedding_type", "rope_gptj"));
  LS_RETURN_IF_ERROR(config.Expect("rotary_pct", 1.0));
  for (const std::string_view key :
       {"use_embedding_sharing", "use_gated_activation", "use_parallel_block"})
    LS_RETURN_IF_ERROR(config.Expect(key, true));
  LS_RETURN_IF_ERROR(config.Expect("use_parallel_embedding", false));
  config.Ignore("layer_switch");
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    const bool sliding =
        types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : (i + 1) % period != 0;
    if (sliding) attention.sliding_window = window;
    // Only the layers with a window turn q and k.
    if (!attention.sliding_window) attention.rope.reset();
    return attention;
  });
}

Result<DecoderFacts> ParseCohereGguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseGgufDense(config,
                        {.norm = NormKind::kLayer, .rope = {.layout = RopeLayout::kInterleaved}}));
  MakeParallel(decoder);
  LS_TRY(decoder.spec.lm_head.logit_scale.value, GetGgufPositive(config, "logit_scale", 1));
  return decoder;
}

Result<ModelSpec> BuildCohereGguf(GgufConfig& config) {
  if (config.HasTensor("blk.0.attn_q_norm.weight"))
    return UnsupportedError(
        "{}: has blk.0.attn_q_norm.weight, expected Command-R without norms of q and k (R+ has a "
        "weight for every head)",
        config.place());
  LS_TRY(DecoderFacts decoder, ParseCohereGguf(config));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildCohere2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseCohereGguf(config));
  LS_TRY(const auto window, GgufSlidingWindow(config));
  LS_TRY(const auto sliding, GgufSlidingLayers(config, decoder.num_layers, 4));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    if (sliding[static_cast<size_t>(i)]) {
      attention.sliding_window = window;
    } else {
      attention.rope.reset();
    }
    return attention;
  });
}

constexpr HfArchitecture kHf[] = {
    {.model_type = "cohere",
     .class_name = "CohereForCausalLM",
     .build = BuildCohere,
     .tensors = kHfDenseTensors,
     .gguf = "command-r"},
    {.model_type = "cohere2",
     .class_name = "Cohere2ForCausalLM",
     .build = BuildCohere2,
     .tensors = kHfDenseTensors,
     .gguf = "cohere2"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "cohere2", .build = BuildCohere2Gguf, .tensors = kGgufDenseTensors},
    {.architecture = "command-r", .build = BuildCohereGguf, .tensors = kGgufDenseTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

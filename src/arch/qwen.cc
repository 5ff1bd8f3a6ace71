// Qwen2 (also Qwen2.5) and Qwen3 (transformers: models/qwen2, models/qwen3).
#include "arch/dense.h"

namespace lockstep {
namespace {

// use_sliding_window switches the window; then layer_types, or every layer from max_window_layers
// on, has it. Files state a sliding_window also where it is off.
Result<ModelSpec> LayOut(HfConfig& config, DecoderFacts decoder) {
  LS_TRY(const bool use_window, config.Get<bool>("use_sliding_window", false));
  std::optional<int64_t> window;
  if (use_window) {
    LS_TRY(window, ParseSlidingWindow(config, 4096));
  } else {
    config.Ignore("sliding_window");
  }
  LS_TRY(const int64_t first_windowed, config.Get<int64_t>("max_window_layers", 28));
  LS_TRY(const auto types,
         FindLayerTypes(config, decoder.num_layers, {"full_attention", "sliding_attention"}));
  LS_RETURN_IF_ERROR(config.Expect("use_mrope", false));  // the vision models' RoPE
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    const bool sliding =
        types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : i >= first_windowed;
    if (sliding) attention.sliding_window = window;
    return attention;
  });
}

Result<ModelSpec> BuildQwen2(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = {.max_position_embeddings = 32768},
                                                   .heads = {.num_key_value_heads = 32},
                                                   .eps = 1e-6}));
  decoder.attention.q_bias = decoder.attention.k_bias = decoder.attention.v_bias = true;
  return LayOut(config, std::move(decoder));
}

Result<ModelSpec> BuildQwen3(HfConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseDense(config, {.common = {.max_position_embeddings = 32768},
                             .heads = {.num_key_value_heads = 32, .head_dim = 128},
                             .eps = 1e-6}));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  decoder.attention.q_norm = decoder.attention.k_norm = decoder.spec.final_norm;
  return LayOut(config, std::move(decoder));
}

Result<ModelSpec> BuildQwen2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildQwen3Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  decoder.attention.q_norm = decoder.attention.k_norm = decoder.spec.final_norm;
  return Repeat(std::move(decoder));
}

constexpr HfArchitecture kHf[] = {
    {.model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .build = BuildQwen2,
     .tensors = kHfDenseTensors,
     .gguf = "qwen2"},
    {.model_type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .build = BuildQwen3,
     .tensors = kHfDenseTensors,
     .gguf = "qwen3"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "qwen2", .build = BuildQwen2Gguf, .tensors = kGgufDenseTensors},
    {.architecture = "qwen3", .build = BuildQwen3Gguf, .tensors = kGgufDenseTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

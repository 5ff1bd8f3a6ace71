// SmolLM3: Llama without rotation in every fourth layer (transformers: models/smollm3).
#include "arch/dense.h"

namespace lockstep {
namespace {

Result<std::vector<bool>> ParseRopeLayers(HfConfig& config, int64_t num_layers) {
  LS_TRY(const int64_t interval, config.GetSize("no_rope_layer_interval", 4));
  std::vector<bool> turned;
  if (!config.Has("no_rope_layers")) {
    for (int64_t i = 0; i < num_layers; ++i) turned.push_back((i + 1) % interval != 0);
    return turned;
  }
  // In spite of its name, 1 means that the layer turns.
  LS_TRY(const auto listed, config.Require<std::vector<int64_t>>("no_rope_layers"));
  if (static_cast<int64_t>(listed.size()) != num_layers)
    return InputError("{}: \"no_rope_layers\" has {} entries, expected {} (num_hidden_layers)",
                      config.place(), listed.size(), num_layers);
  for (const int64_t flag : listed) turned.push_back(flag != 0);
  return turned;
}

Result<ModelSpec> BuildSmolLm3(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = {.tie_word_embeddings = true,
                                                              .max_position_embeddings = 32768,
                                                              .bos_token_id = 128000,
                                                              .eos_token_id = 128001,
                                                              .pad_token_id = 128004},
                                                   .heads = {.num_key_value_heads = 4},
                                                   .eps = 1e-6,
                                                   .rope = {.default_theta = 2000000}}));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(const bool mlp_bias, config.Get<bool>("mlp_bias", false));
  decoder.mlp.up_bias = decoder.mlp.down_bias = mlp_bias;
  LS_TRY(const std::vector<bool> turned, ParseRopeLayers(config, decoder.num_layers));
  LS_TRY(const auto types,
         FindLayerTypes(config, decoder.num_layers, {"full_attention", "sliding_attention"}));
  LS_TRY(const bool use_window, config.Get<bool>("use_sliding_window", false));
  LS_TRY(const auto window, ParseSlidingWindow(config, std::nullopt));
  config.Ignore("max_window_layers");  // of the Qwen2 code it grew from; never read
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    const size_t at = static_cast<size_t>(i);
    // Without layer_types only the layers without rotation get the window.
    const bool sliding = types ? (*types)[at] == "sliding_attention" : !turned[at];
    if (use_window && sliding) attention.sliding_window = window;
    if (!turned[at]) attention.rope.reset();
    return attention;
  });
}

Result<ModelSpec> BuildSmolLm3Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    // llama.cpp: n_no_rope_layer_step = 4; there is no key.
    if ((i + 1) % 4 == 0) attention.rope.reset();
    return attention;
  });
}

constexpr HfArchitecture kHf[] = {
    {.model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .build = BuildSmolLm3,
     .tensors = kHfDenseTensors,
     .gguf = "smollm3"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "smollm3", .build = BuildSmolLm3Gguf, .tensors = kGgufPairedTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

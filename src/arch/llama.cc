// Llama and Mistral (transformers: models/llama, models/mistral). In GGUF both are "llama", and so
// are SmolLM and most of their descendants.
#include "arch/dense.h"
#include "arch/mixtral.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildLlama(HfConfig& config) {
  LS_TRY(
      DecoderFacts decoder,
      ParseDense(config,
                 {.common = {.max_position_embeddings = 2048, .bos_token_id = 1, .eos_token_id = 2},
                  .eps = 1e-6}));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(const bool mlp_bias, config.Get<bool>("mlp_bias", false));
  decoder.mlp.up_bias = decoder.mlp.down_bias = mlp_bias;
  // Remarks that SmolLM2's files carry from their training code. transformers reads neither.
  config.Ignore("is_llama_config");
  LS_RETURN_IF_ERROR(config.Expect("rope_interleaved", false));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildMistral(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = {.max_position_embeddings = 4096 * 32,
                                                              .bos_token_id = 1,
                                                              .eos_token_id = 2},
                                                   .heads = {.num_key_value_heads = 8},
                                                   .eps = 1e-6}));
  // Absent means 4096, as in the first Mistral; later files say null.
  LS_TRY(decoder.attention.sliding_window, ParseSlidingWindow(config, 4096));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildLlamaGguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  // The name of the layout that converters of 2023 wrote; they had permuted q and k by then.
  config.Ignore("tensor_data_layout");
  ModelSpec spec = Repeat(std::move(decoder));
  LS_TRY(const int64_t experts, config.Get<int64_t>("expert_count", 0));
  config.Ignore("expert_used_count");
  if (experts == 0) return spec;
  // Mixtral is a "llama" with experts.
  LS_TRY(const MoeSpec moe, ParseGgufMixtralExperts(config));
  for (LayerSpec& layer : spec.layers) layer.mlp = moe;
  return spec;
}

constexpr std::string_view kInverseFrequencies[] = {
    "model.layers.{layer}.self_attn.rotary_emb.inv_freq"};
constexpr HfArchitecture kHf[] = {
    {.model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .build = BuildLlama,
     .tensors = kHfDenseTensors,
     .buffers = kInverseFrequencies,
     .gguf = "llama"},
    {.model_type = "mistral",
     .class_name = "MistralForCausalLM",
     .build = BuildMistral,
     .tensors = kHfDenseTensors,
     .buffers = kInverseFrequencies,
     .gguf = "llama"},
};
constexpr auto kGgufRules =
    JoinRules(kGgufDecoderRules, kGgufPairedAttentionRules, kGgufDenseMlpRules, kGgufExpertRules);
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "llama", .build = BuildLlamaGguf, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

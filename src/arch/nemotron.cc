// Nemotron: LayerNorm with 1 + w ("layernorm1p"), squared ReLU without a gate, half of each head
// turns (transformers: models/nemotron).
#include "arch/dense.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildNemotron(HfConfig& config) {
  LS_TRY(
      DecoderFacts decoder,
      ParseDense(config,
                 {.common = {.max_position_embeddings = 4096, .bos_token_id = 2, .eos_token_id = 3},
                  .activation = "relu2",
                  .norm = NormKind::kLayer,
                  .eps_key = "norm_eps",
                  .eps = 1e-5,
                  .rope = {.partial_rotary = true, .default_partial_rotary_factor = 0.5}}));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(const bool mlp_bias, config.Get<bool>("mlp_bias", false));
  decoder.mlp.up_bias = decoder.mlp.down_bias = mlp_bias;
  decoder.mlp.gated = false;
  decoder.spec.final_norm.weight_offset = 1;
  decoder.layer.mixer_pre_norm = decoder.layer.mlp_pre_norm = decoder.spec.final_norm;
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildNemotronGguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {.norm = NormKind::kLayer,
                                                       .norm_bias = true,
                                                       .weight_offset = 1,
                                                       .gated = false,
                                                       .activation = Activation::kRelu2}));
  return Repeat(std::move(decoder));
}

// The converter adds 1 to every norm weight and leaves the biases alone.
constexpr TensorRule kGgufNormRules[] = {
    {.role = Role::kFinalNorm, .name = "output_norm", .addend = -1},
    {.role = Role::kMixerPreNorm, .name = "blk.{layer}.attn_norm", .addend = -1},
    {.role = Role::kMlpPreNorm, .name = "blk.{layer}.ffn_norm", .addend = -1},
};
constexpr auto kGgufTensors =
    JoinRules(kGgufNormRules, kGgufDecoderRules, kGgufAttentionRules, kGgufDenseMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "nemotron",
     .class_name = "NemotronForCausalLM",
     .build = BuildNemotron,
     .tensors = kHfDenseTensors,
     .gguf = "nemotron"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "nemotron", .build = BuildNemotronGguf, .tensors = kGgufTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

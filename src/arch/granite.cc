// Granite: Llama with four multipliers (transformers: models/granite).
#include "arch/dense.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildGranite(HfConfig& config) {
  LS_TRY(
      DecoderFacts decoder,
      ParseDense(config,
                 {.common = {.max_position_embeddings = 2048, .bos_token_id = 1, .eos_token_id = 2},
                  .eps = 1e-6}));
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(const bool mlp_bias, config.Get<bool>("mlp_bias", false));
  decoder.mlp.up_bias = decoder.mlp.down_bias = mlp_bias;
  // The defaults are 1, also for attention: not 1 / sqrt(head_dim).
  LS_TRY(decoder.spec.embedding.scale.value, GetPositive(config, "embedding_multiplier", 1));
  LS_TRY(decoder.attention.query_scale.value, GetPositive(config, "attention_multiplier", 1));
  LS_TRY(decoder.layer.residual.value, GetPositive(config, "residual_multiplier", 1));
  LS_TRY(decoder.spec.lm_head.logit_scale.value, GetPositive(config, "logits_scaling", 1));
  decoder.spec.lm_head.logit_scale.divide = true;
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildGraniteGguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  // Converters leave a multiplier out when it is 0; llama.cpp then applies none of it.
  LS_TRY(decoder.spec.embedding.scale.value, GetGgufPositive(config, "embedding_scale", 1));
  LS_TRY(decoder.attention.query_scale.value,
         GetGgufPositive(config, "attention.scale", decoder.attention.query_scale.value));
  LS_TRY(decoder.layer.residual.value, GetGgufPositive(config, "residual_scale", 1));
  LS_TRY(decoder.spec.lm_head.logit_scale.value, GetGgufPositive(config, "logit_scale", 1));
  decoder.spec.lm_head.logit_scale.divide = true;
  return Repeat(std::move(decoder));
}

constexpr HfArchitecture kHf[] = {
    {.model_type = "granite",
     .class_name = "GraniteForCausalLM",
     .build = BuildGranite,
     .tensors = kHfDenseTensors,
     .gguf = "granite"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "granite", .build = BuildGraniteGguf, .tensors = kGgufPairedTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

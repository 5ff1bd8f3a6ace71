// OLMo, OLMo-2 and OLMo-3 (transformers: models/olmo, olmo2, olmo3).
#include "arch/dense.h"

namespace lockstep {
namespace {

CommonDefaults OlmoDefaults() {
  return {.max_position_embeddings = 2048, .eos_token_id = 50279, .pad_token_id = 1};
}

// The first OLMo: LayerNorm without weights, eps 1e-5 in the code.
void MakePlainNorms(DecoderFacts& decoder) {
  NormSpec norm = LayerNorm(1e-5, /*bias=*/false);
  norm.weight = false;
  decoder.layer.mixer_pre_norm = decoder.layer.mlp_pre_norm = decoder.spec.final_norm = norm;
}

Result<ModelSpec> BuildOlmo(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = OlmoDefaults(), .eps_key = ""}));
  MakePlainNorms(decoder);
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  LS_TRY(decoder.attention.clip_qkv, ParseOptional(config, "clip_qkv", std::nullopt));
  return Repeat(std::move(decoder));
}

// OLMo-2 and 3 norm what leaves a half, not what enters it, and q and k as whole vectors.
void MakePostNorms(DecoderFacts& decoder) {
  const NormSpec norm = decoder.spec.final_norm;
  decoder.layer.mixer_pre_norm.reset();
  decoder.layer.mlp_pre_norm.reset();
  decoder.layer.mixer_post_norm = decoder.layer.mlp_post_norm = norm;
  decoder.attention.q_norm = decoder.attention.k_norm = norm;
  decoder.attention.qk_norm_scope = QkNormScope::kProjection;
}

Result<ModelSpec> BuildOlmo2(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = OlmoDefaults(), .eps = 1e-5}));
  MakePostNorms(decoder);
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildOlmo3(HfConfig& config) {
  LS_TRY(DecoderFacts decoder,
         ParseDense(config, {.common = OlmoDefaults(), .eps = 1e-5, .one_rope = false}));
  MakePostNorms(decoder);
  LS_RETURN_IF_ERROR(ParseAttentionBias(config, false, /*with_o=*/true, decoder.attention));
  RopeQuery query{.head_dim = decoder.attention.head_dim,
                  .default_theta = 500000,
                  .layer_type = "full_attention",
                  .max_position_embeddings = decoder.spec.max_position_embeddings};
  LS_TRY(const RopeSpec full_rope, ParseRope(config, query));
  query.layer_type = "sliding_attention";
  // transformers takes an old file's rope_theta away for the full layers and gives the sliding ones
  // its default (convert_rope_params_to_dict pops it once).
  query.theta_key = "";
  LS_TRY(const RopeSpec sliding_rope, ParseRope(config, query));
  LS_TRY(const auto window, ParseSlidingWindow(config, 4096));
  LS_TRY(const auto types,
         FindLayerTypes(config, decoder.num_layers, {"full_attention", "sliding_attention"}));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    const bool sliding =
        types ? (*types)[static_cast<size_t>(i)] == "sliding_attention" : (i + 1) % 4 != 0;
    attention.rope = sliding ? sliding_rope : full_rope;
    if (sliding) attention.sliding_window = window;
    return attention;
  });
}

Result<ModelSpec> BuildOlmoGguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {.norm = NormKind::kLayer}));
  const double eps = decoder.spec.final_norm.eps;
  MakePlainNorms(decoder);
  decoder.spec.final_norm.eps = eps;
  decoder.layer.mixer_pre_norm = decoder.layer.mlp_pre_norm = decoder.spec.final_norm;
  LS_TRY(const double clip, GetGgufPositive(config, "attention.clamp_kqv", 0));
  if (clip > 0) decoder.attention.clip_qkv = clip;
  return Repeat(std::move(decoder));
}

// OLMo-2; with a window it is OLMo-3, whose sliding layers ignore rope.scaling.
Result<ModelSpec> BuildOlmo2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {}));
  MakePostNorms(decoder);
  LS_TRY(const auto window, GgufSlidingWindow(config));
  if (!window) return Repeat(std::move(decoder));
  LS_TRY(const auto sliding, GgufSlidingLayers(config, decoder.num_layers, 4));
  LS_TRY(const RopeSpec sliding_rope,
         ParseGgufRope(config, {.head_dim = decoder.attention.head_dim, .scaled = false}));
  return RepeatWith(decoder, [&](int64_t i) {
    AttentionSpec attention = decoder.attention;
    if (sliding[static_cast<size_t>(i)]) {
      attention.sliding_window = window;
      attention.rope = sliding_rope;
    }
    return attention;
  });
}

constexpr auto kGgufOlmo2Tensors =
    JoinRules(kGgufDecoderRules, kGgufPostNormRules, kGgufAttentionRules, kGgufDenseMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "olmo",
     .class_name = "OlmoForCausalLM",
     .build = BuildOlmo,
     .tensors = kHfDenseTensors,
     .gguf = "olmo"},
    {.model_type = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .build = BuildOlmo2,
     .tensors = kHfSandwichTensors,
     .gguf = "olmo2"},
    {.model_type = "olmo3",
     .class_name = "Olmo3ForCausalLM",
     .build = BuildOlmo3,
     .tensors = kHfSandwichTensors,
     .gguf = "olmo2"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "olmo", .build = BuildOlmoGguf, .tensors = kGgufPairedTensors},
    {.architecture = "olmo2", .build = BuildOlmo2Gguf, .tensors = kGgufOlmo2Tensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

// Phi-3.5-MoE: layer norms, biases everywhere, two experts chosen by sparsemixer.
// transformers: models/phimoe.
#include "arch/decoder.h"
#include "arch/gguf_presence.h"

namespace lockstep {
namespace {

NormSpec PhimoeNorm(double eps) { return {.kind = NormKind::kLayer, .eps = eps, .bias = true}; }

void UseLayerNorms(ModelSpec& spec) {
  spec.final_norm = PhimoeNorm(spec.final_norm.eps);
  for (LayerSpec& layer : spec.layers) layer.mixer_pre_norm = layer.mlp_pre_norm = spec.final_norm;
}

constexpr std::string_view kScaleKeys[] = {"short_mscale", "long_mscale"};

// PhimoeRotaryEmbedding.forward: cos and sin times short_mscale, or long_mscale once the length
// passes the original one. It asks for the frequencies without naming a length, and so rotates with
// short_factor at every length.
Status ReadScales(HfConfig& config, LongRopeScaling& longrope) {
  const Json* parameters = config.FindRaw("rope_scaling");
  const std::string_view key = parameters != nullptr ? "rope_scaling" : "rope_parameters";
  LS_TRY(HfConfig * rope, config.RequireObject(key));
  for (const auto& [name, value] : config.FindRaw(key)->items()) rope->Ignore(name);
  LS_TRY(const double short_scale, rope->Require<double>(kScaleKeys[0]));
  LS_TRY(const double long_scale, rope->Require<double>(kScaleKeys[1]));
  if (short_scale != long_scale)
    return rope->Bad(kScaleKeys[1], fmt::format("short_mscale {}", short_scale));
  if (!(short_scale > 0)) return rope->Bad(kScaleKeys[0], "a number above 0");
  longrope.attention_factor = short_scale;
  longrope.long_factor = longrope.short_factor;
  return {};
}

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(ModelSpec spec,
         ParseHfDecoder(config, {.common = {.vocab_size = 32064,
                                            .hidden_size = 4096,
                                            .max_position_embeddings = 131072,
                                            .bos_token_id = 1,
                                            .eos_token_id = 2},
                                 .heads = {.num_attention_heads = 32, .num_key_value_heads = 8},
                                 .num_layers = 32,
                                 .default_eps = 1e-5,
                                 .default_theta = 1e6,
                                 .rope_keys = kScaleKeys}));
  UseLayerNorms(spec);
  LS_TRY(spec.lm_head.bias, config.Get<bool>("lm_head_bias", false));
  LS_TRY(const bool bias, config.Get<bool>("attention_bias", false));
  LS_TRY(const std::optional<int64_t> window, FindWindow(config, "sliding_window"));
  RopeSpec rope = AttentionOf(spec.layers[0]).rope.value();
  if (rope.scaling) {
    auto* longrope = std::get_if<LongRopeScaling>(&*rope.scaling);
    if (longrope == nullptr)
      return UnsupportedError("{}: the rope_type of phimoe is not default, expected longrope",
                              config.place());
    LS_RETURN_IF_ERROR(ReadScales(config, *longrope));
  }

  MoeSpec moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_local_experts"}, 16));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 2));
  // sparsemixer picks two, whatever num_experts_per_tok says.
  if (moe.num_experts_per_tok != 2) return config.Bad("num_experts_per_tok", "2 (sparsemixer)");
  moe.router.scoring = RouterScoring::kSparseMixer;
  LS_TRY(moe.router.sparse_mixer_jitter, config.Get<double>("router_jitter_noise", 0.01));
  if (*moe.router.sparse_mixer_jitter < 0)
    return config.Bad("router_jitter_noise", "a number that is not negative");
  config.Ignore("input_jitter_noise");  // of training
  LS_TRY(moe.expert.intermediate_size, config.GetSize("intermediate_size", 6400));
  LS_TRY(moe.expert.activation, ParseActivation(config, "hidden_act", "silu"));
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = AttentionOf(layer);
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
    attention.sliding_window = window;
    attention.rope = rope;
    layer.mlp = moe;
  }
  return spec;
}

// llama.cpp computes this model with RMS norms and a plain softmax router, which GGUF has no keys
// to contradict; what is stated here is the model.
Result<ModelSpec> BuildGguf(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufDecoder(config, {}));
  UseLayerNorms(spec);
  spec.lm_head.bias = config.HasTensor("output.bias");
  LS_TRY(MoeSpec moe, ParseGgufMoe(config, {.scoring = RouterScoring::kSparseMixer}));
  if (moe.num_experts_per_tok != 2) return config.Bad("expert_used_count", "2 (sparsemixer)");
  moe.router.scoring = RouterScoring::kSparseMixer;
  moe.router.sparse_mixer_jitter = 0.01;  // PhimoeConfig's; no released model has another
  LS_TRY(const int64_t window, config.Get<int64_t>("attention.sliding_window", 0));
  if (window < 0 || window > kMaxLength)
    return config.Bad("attention.sliding_window", fmt::format("0 to {}", kMaxLength));
  const bool fused = config.HasTensor("blk.0.attn_qkv.weight");
  LS_TRY(const bool fused_bias,
         InEveryLayer(config, "attn_qkv.bias", static_cast<int64_t>(spec.layers.size())));
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = AttentionOf(layer);
    if (fused) attention.q_bias = attention.k_bias = attention.v_bias = fused_bias;
    if (window > 0) attention.sliding_window = window;
    if (attention.rope->scaling) {
      // As transformers rotates: see ReadScales.
      auto* longrope = std::get_if<LongRopeScaling>(&*attention.rope->scaling);
      if (longrope != nullptr) longrope->long_factor = longrope->short_factor;
    }
    layer.mlp = moe;
  }
  return spec;
}

constexpr Role kQkv[] = {Role::kQProj, Role::kKProj, Role::kVProj};
constexpr TensorRule kModuleRules[] = {
    // The names of transformers 5's modules; it saves the older ones.
    {.role = Role::kRouter, .name = "model.layers.{layer}.mlp.router"},
    {.role = Role::kExpertGateProj, .name = "model.layers.{layer}.mlp.experts.{expert}.w1"},
    {.role = Role::kExpertUpProj, .name = "model.layers.{layer}.mlp.experts.{expert}.w3"},
    {.role = Role::kExpertDownProj, .name = "model.layers.{layer}.mlp.experts.{expert}.w2"},
};
constexpr TensorRule kGgufFusedRules[] = {
    {.role = Role::kQProj, .name = "blk.{layer}.attn_qkv", .fused = kQkv},
    {.role = Role::kKProj, .name = "blk.{layer}.attn_qkv", .fused = kQkv},
    {.role = Role::kVProj, .name = "blk.{layer}.attn_qkv", .fused = kQkv},
};
constexpr auto kHfRules = JoinRules(kHfDecoderRules, kHfAttentionRules, kHfMixtralExpertRules,
                                    kModuleRules, kHfStackedExpertRules);
constexpr auto kGgufRules =
    JoinRules(kGgufDecoderRules, kGgufAttentionRules, kGgufFusedRules, kGgufExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "phimoe",
     .class_name = "PhimoeForCausalLM",
     .build = BuildHf,
     .tensors = kHfRules,
     .gguf = "phimoe"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "phimoe",
     .build = BuildGguf,
     .tensors = kGgufRules,
     .llama_cpp_differs = "llama.cpp computes this architecture with RMS norms and a plain softmax "
                          "router, which the "
                          "model does not have"},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

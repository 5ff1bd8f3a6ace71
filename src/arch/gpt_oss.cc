// gpt-oss: sinks in the softmax, windows in every other layer, experts with biases and a clamped
// gate. transformers: models/gpt_oss.
#include <cmath>

#include "arch/decoder.h"

namespace lockstep {
namespace {

// GptOssExperts._apply_gate; llama.cpp has the same numbers in code (swiglu_oai).
constexpr ClampedGlu kGlu = {.alpha = 1.702, .limit = 7, .up_offset = 1};

// The dictionary that GptOssConfig takes when the file has none.
YarnScaling DefaultYarn() {
  return {.factor = 32,
          .truncate = false,
          .attention_factor = 0.1 * std::log(32.0) + 1,
          .original_max_position_embeddings = 4096};
}

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(
      ModelSpec spec,
      ParseHfDecoder(
          config,
          {.common = {.vocab_size = 201088, .hidden_size = 2880, .max_position_embeddings = 131072},
           .heads = {.num_attention_heads = 64, .num_key_value_heads = 8, .head_dim = 64},
           .num_layers = 36,
           .default_eps = 1e-5,
           .default_theta = 150000}));
  const bool default_rope = !config.Has("rope_parameters") && !config.Has("rope_scaling");
  LS_TRY(const bool bias, config.Get<bool>("attention_bias", true));
  LS_TRY(const std::optional<int64_t> window, FindWindow(config, "sliding_window"));
  LS_TRY(const auto types, FindLayerTypes(config, static_cast<int64_t>(spec.layers.size()),
                                          {"full_attention", "sliding_attention"}));
  // What the model's first, non-transformers configuration calls the same facts.
  config.Ignore("experts_per_token");
  config.Ignore("initial_context_length");

  MoeSpec moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_local_experts", "num_experts"}, 128));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 4));
  moe.router = {.scoring = RouterScoring::kTopKThenSoftmax, .bias = true};
  LS_TRY(moe.expert.intermediate_size, config.GetSize("intermediate_size", 2880));
  config.Ignore("hidden_act");  // the experts do not use it
  moe.expert.up_bias = moe.expert.down_bias = true;
  ClampedGlu glu = kGlu;
  LS_TRY(glu.alpha, config.Get<double>("swiglu_alpha", kGlu.alpha));
  LS_TRY(glu.limit, GetPositive(config, "swiglu_limit", kGlu.limit));
  moe.expert.clamped_glu = glu;

  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = AttentionOf(spec.layers[i]);
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
    attention.sinks = true;
    if (types ? (*types)[i] == "sliding_attention" : i % 2 == 0)
      attention.sliding_window = window.value_or(128);
    if (default_rope) attention.rope->scaling = DefaultYarn();
    spec.layers[i].mlp = moe;
  }
  return spec;
}

Result<ModelSpec> BuildGguf(GgufConfig& config) {
  // llama.cpp rounds the ends of YaRN's ramp; the model does not (truncate: false), and GGUF cannot
  // say so.
  LS_TRY(ModelSpec spec,
         ParseGgufDecoder(config, {.default_theta = 150000, .yarn_truncate = false}));
  LS_TRY(MoeSpec moe, ParseGgufMoe(config, {.scoring = RouterScoring::kTopKThenSoftmax}));
  moe.router.bias = true;
  moe.expert.up_bias = moe.expert.down_bias = true;
  moe.expert.clamped_glu = kGlu;
  config.Ignore("feed_forward_length");
  LS_TRY(const int64_t window, config.RequireCount("attention.sliding_window", kMaxLength));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = AttentionOf(spec.layers[i]);
    attention.sinks = true;
    if (i % 2 == 0) attention.sliding_window = window;
    spec.layers[i].mlp = moe;
  }
  return spec;
}

// Parameters of a module without modules in it: the tensors have no suffix, are stored [inputs,
// outputs], and gate and up alternate.
constexpr TensorRule kExpertRules[] = {
    {.role = Role::kSinks,
     .name = "model.layers.{layer}.self_attn.sinks",
     .suffix = TensorSuffix::kBare},
    {.role = Role::kRouter, .name = "model.layers.{layer}.mlp.router"},
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.mlp.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .transposed = true,
     .stacked_experts = true,
     .fused = kExpertGateAndUp,
     .fused_interleaved = true},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.mlp.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .transposed = true,
     .stacked_experts = true,
     .fused = kExpertGateAndUp,
     .fused_interleaved = true},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.mlp.experts.down_proj",
     .suffix = TensorSuffix::kBare,
     .transposed = true,
     .stacked_experts = true},
};
constexpr TensorRule kGgufOwnRules[] = {
    {.role = Role::kSinks, .name = "blk.{layer}.attn_sinks"},
    // llama.cpp puts the norm of the second half under the name of a post-attention norm.
    {.role = Role::kMlpPreNorm, .name = "blk.{layer}.post_attention_norm"},
};
constexpr auto kHfRules = JoinRules(kHfDecoderRules, kHfAttentionRules, kExpertRules);
constexpr auto kGgufRules =
    JoinRules(kGgufOwnRules, kGgufDecoderRules, kGgufAttentionRules, kGgufExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .build = BuildHf,
     .tensors = kHfRules,
     .gguf = "gpt-oss"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "gpt-oss",
     .build = BuildGguf,
     .tensors = kGgufRules,
     .llama_cpp_differs = "llama.cpp rounds the ends of YaRN's ramp to whole dimensions, which "
                          "this model does not do"},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

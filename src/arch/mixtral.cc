// Mixtral: Llama with experts. transformers: models/mixtral. In GGUF it is the architecture "llama"
// with expert_count above 0 (llama.cc reads it with ParseGgufMixtralExperts).
#include "arch/mixtral.h"

#include "arch/decoder.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(ModelSpec spec,
         ParseHfDecoder(config, {.common = {.vocab_size = 32000,
                                            .hidden_size = 4096,
                                            .max_position_embeddings = 131072,
                                            .bos_token_id = 1,
                                            .eos_token_id = 2},
                                 .heads = {.num_attention_heads = 32, .num_key_value_heads = 8},
                                 .num_layers = 32,
                                 .default_eps = 1e-5,
                                 .default_theta = 1e6}));
  LS_TRY(const std::optional<int64_t> window, FindWindow(config, "sliding_window"));
  MoeSpec moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_local_experts", "num_experts"}, 8));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 2));
  LS_TRY(moe.expert.intermediate_size, config.GetSize("intermediate_size", 14336));
  LS_TRY(moe.expert.activation, ParseActivation(config, "hidden_act", "silu"));
  // MixtralTopKRouter: softmax over all, the best, divided by their sum.
  moe.router.normalize_top_k = true;
  config.Ignore("router_jitter_noise");  // of training
  for (LayerSpec& layer : spec.layers) {
    AttentionOf(layer).sliding_window = window;
    layer.mlp = moe;
  }
  return spec;
}

constexpr TensorRule kModuleRules[] = {
    // The names of transformers 5's modules; it saves the older ones.
    {.role = Role::kRouter, .name = "model.layers.{layer}.mlp.gate"},
    {.role = Role::kExpertGateProj, .name = "model.layers.{layer}.mlp.experts.{expert}.w1"},
    {.role = Role::kExpertUpProj, .name = "model.layers.{layer}.mlp.experts.{expert}.w3"},
    {.role = Role::kExpertDownProj, .name = "model.layers.{layer}.mlp.experts.{expert}.w2"},
};
constexpr auto kHfRules = JoinRules(kHfDecoderRules, kHfAttentionRules, kHfMixtralExpertRules,
                                    kModuleRules, kHfStackedExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .build = BuildHf,
     .tensors = kHfRules,
     .gguf = "llama"},
};
const ArchitectureFamily kFamily(kHf, {});

}  // namespace

Result<MoeSpec> ParseGgufMixtralExperts(GgufConfig& config) {
  return ParseGgufMoe(config, {.normalize_top_k = true});
}

}  // namespace lockstep

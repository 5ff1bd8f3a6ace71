// Qwen2-MoE and Qwen3-MoE. transformers: models/qwen2_moe, models/qwen3_moe.
#include <algorithm>

#include "arch/decoder.h"

namespace lockstep {
namespace {

// Both: `layer not in mlp_only_layers and num_experts > 0 and (layer + 1) % decoder_sparse_step ==
// 0` has experts, the others one MLP.
struct SparseLayers {
  std::vector<int64_t> mlp_only;
  int64_t step = 1;

  bool HasExperts(size_t layer) const {
    const auto index = static_cast<int64_t>(layer);
    return std::find(mlp_only.begin(), mlp_only.end(), index) == mlp_only.end() &&
           (index + 1) % step == 0;
  }
};

Result<SparseLayers> ParseSparseLayers(HfConfig& config) {
  SparseLayers layers;
  LS_TRY(layers.mlp_only, config.Get<std::vector<int64_t>>("mlp_only_layers", {}));
  LS_TRY(layers.step, config.Get<int64_t>("decoder_sparse_step", 1));
  if (layers.step < 1) return config.Bad("decoder_sparse_step", "1 or more");
  return layers;
}

// Both names of the count; 0 means that no layer has experts.
bool WithoutExperts(HfConfig& config) {
  for (const std::string_view key : {"num_experts", "num_local_experts"}) {
    const Json* count = config.FindRaw(key);
    if (count != nullptr) return count->is_number_integer() && *count == 0;
  }
  return false;
}

struct ExpertDefaults {
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
};

Result<MoeSpec> ParseExperts(HfConfig& config, const ExpertDefaults& defaults) {
  MoeSpec moe;
  LS_TRY(moe.num_experts,
         ParseNumExperts(config, {"num_experts", "num_local_experts"}, defaults.num_experts));
  LS_TRY(moe.num_experts_per_tok,
         ParseExpertsPerToken(config, moe.num_experts, defaults.num_experts_per_tok));
  LS_TRY(moe.expert.intermediate_size,
         config.GetSize("moe_intermediate_size", defaults.moe_intermediate_size));
  LS_TRY(moe.expert.activation, ParseActivation(config, "hidden_act", "silu"));
  LS_TRY(moe.router.normalize_top_k, config.Get<bool>("norm_topk_prob", false));
  return moe;
}

Result<MlpSpec> ParseDense(HfConfig& config, int64_t intermediate_size) {
  MlpSpec mlp;
  LS_TRY(mlp.intermediate_size, config.GetSize("intermediate_size", intermediate_size));
  LS_TRY(mlp.activation, ParseActivation(config, "hidden_act", "silu"));
  return mlp;
}

Status SetFeedForward(HfConfig& config, const MlpSpec& dense, const MoeSpec* moe, ModelSpec& spec) {
  LS_TRY(const SparseLayers sparse, ParseSparseLayers(config));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (moe != nullptr && sparse.HasExperts(i)) {
      spec.layers[i].mlp = *moe;
    } else {
      spec.layers[i].mlp = dense;
    }
  }
  return {};
}

Result<ModelSpec> BuildQwen2Moe(HfConfig& config) {
  LS_TRY(
      ModelSpec spec,
      ParseHfDecoder(
          config,
          {.common = {.vocab_size = 151936, .hidden_size = 2048, .max_position_embeddings = 32768},
           .heads = {.num_attention_heads = 16, .num_key_value_heads = 16},
           .num_layers = 24}));
  LS_TRY(const bool qkv_bias, config.Get<bool>("qkv_bias", true));
  LS_TRY(const bool use_window, config.Get<bool>("use_sliding_window", false));
  LS_TRY(const int64_t window, GetWindow(config, "sliding_window", use_window, 4096));
  LS_TRY(const int64_t max_window_layers, config.Get<int64_t>("max_window_layers", 28));
  LS_TRY(const auto types, FindLayerTypes(config, static_cast<int64_t>(spec.layers.size()),
                                          {"full_attention", "sliding_attention"}));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = AttentionOf(spec.layers[i]);
    attention.q_bias = attention.k_bias = attention.v_bias = qkv_bias;
    // Qwen2MoeConfig: the even layers below max_window_layers.
    const bool sliding =
        types ? (*types)[i] == "sliding_attention"
              : use_window && (i + 1) % 2 != 0 && static_cast<int64_t>(i) < max_window_layers;
    if (!sliding) continue;
    if (!use_window)
      return config.Bad("use_sliding_window", "true (layer_types has sliding_attention)");
    attention.sliding_window = window;
  }

  LS_TRY(const MlpSpec dense, ParseDense(config, 5632));
  SharedExpertSpec shared{.mlp = dense, .sigmoid_gate = true};
  LS_TRY(shared.mlp.intermediate_size, config.GetSize("shared_expert_intermediate_size", 5632));
  if (WithoutExperts(config)) {
    LS_RETURN_IF_ERROR(SetFeedForward(config, dense, nullptr, spec));
    return spec;
  }
  LS_TRY(MoeSpec moe,
         ParseExperts(
             config, {.num_experts = 60, .num_experts_per_tok = 4, .moe_intermediate_size = 1408}));
  moe.shared_expert = shared;
  LS_RETURN_IF_ERROR(SetFeedForward(config, dense, &moe, spec));
  return spec;
}

Result<ModelSpec> BuildQwen3Moe(HfConfig& config) {
  LS_TRY(
      ModelSpec spec,
      ParseHfDecoder(
          config,
          {.common = {.vocab_size = 151936, .hidden_size = 2048, .max_position_embeddings = 32768},
           .heads = {.num_attention_heads = 32, .num_key_value_heads = 4},
           .num_layers = 24}));
  LS_TRY(const bool bias, config.Get<bool>("attention_bias", false));
  LS_TRY(const bool use_window, config.Get<bool>("use_sliding_window", false));
  LS_TRY(const int64_t window, GetWindow(config, "sliding_window", use_window, 4096));
  config.Ignore("max_window_layers");  // the window, when used, is of all layers
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = AttentionOf(layer);
    attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
    attention.q_norm = attention.k_norm = spec.final_norm;
    if (use_window) attention.sliding_window = window;
  }
  LS_TRY(const MlpSpec dense, ParseDense(config, 6144));
  if (WithoutExperts(config)) {
    LS_RETURN_IF_ERROR(SetFeedForward(config, dense, nullptr, spec));
    return spec;
  }
  LS_TRY(const MoeSpec moe,
         ParseExperts(
             config, {.num_experts = 128, .num_experts_per_tok = 8, .moe_intermediate_size = 768}));
  LS_RETURN_IF_ERROR(SetFeedForward(config, dense, &moe, spec));
  return spec;
}

// GGUF has no key for layers without experts: llama.cpp gives every layer experts.
Result<ModelSpec> BuildGgufQwen2Moe(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufDecoder(config, {}));
  LS_TRY(MoeSpec moe, ParseGgufMoe(config, {.feed_forward_is_sum = true}));
  SharedExpertSpec shared{.sigmoid_gate = true};
  LS_TRY(shared.mlp.intermediate_size, config.GetSize("expert_shared_feed_forward_length", 0));
  if (shared.mlp.intermediate_size == 0) {
    LS_TRY(shared.mlp.intermediate_size, config.RequireSize("feed_forward_length"));
  }
  config.Ignore("feed_forward_length");
  moe.shared_expert = shared;
  for (LayerSpec& layer : spec.layers) layer.mlp = moe;
  return spec;
}

Result<ModelSpec> BuildGgufQwen3Moe(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufDecoder(config, {}));
  LS_TRY(const MoeSpec moe,
         ParseGgufMoe(config, {.normalize_top_k = true, .feed_forward_is_sum = true}));
  config.Ignore("feed_forward_length");
  for (LayerSpec& layer : spec.layers) {
    AttentionOf(layer).q_norm = AttentionOf(layer).k_norm = spec.final_norm;
    layer.mlp = moe;
  }
  return spec;
}

constexpr TensorRule kHfSharedRules[] = {
    {.role = Role::kSharedGateProj, .name = "model.layers.{layer}.mlp.shared_expert.gate_proj"},
    {.role = Role::kSharedUpProj, .name = "model.layers.{layer}.mlp.shared_expert.up_proj"},
    {.role = Role::kSharedDownProj, .name = "model.layers.{layer}.mlp.shared_expert.down_proj"},
    {.role = Role::kSharedExpertGate, .name = "model.layers.{layer}.mlp.shared_expert_gate"},
};
constexpr auto kHfRules = JoinRules(kHfDecoderRules, kHfAttentionRules, kHfDenseMlpRules,
                                    kHfQwenExpertRules, kHfStackedExpertRules, kHfSharedRules);
constexpr auto kGgufRules =
    JoinRules(kGgufDecoderRules, kGgufAttentionRules, kGgufExpertRules, kGgufSharedExpertRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "qwen2_moe",
     .class_name = "Qwen2MoeForCausalLM",
     .build = BuildQwen2Moe,
     .tensors = kHfRules,
     .gguf = "qwen2moe"},
    {.model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .build = BuildQwen3Moe,
     .tensors = kHfRules,
     .gguf = "qwen3moe"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "qwen2moe", .build = BuildGgufQwen2Moe, .tensors = kGgufRules},
    {.architecture = "qwen3moe", .build = BuildGgufQwen3Moe, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

// What the mixture-of-experts families share: the decoder around the experts (pre-norms, attention,
// RoPE), the reading of expert counts, and the names that several of them give to the same tensors.
// A family file starts from these and adds its own facts. Used by arch/ only.
#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "arch/architecture.h"

namespace lockstep {

// Experts of one layer. The largest count known is 512; the bound keeps a hostile file from asking
// for a table of billions of weights.
inline constexpr int64_t kMaxExpertsPerLayer = 1024;

inline NormSpec RmsNorm(double eps) { return {.kind = NormKind::kRms, .eps = eps}; }

// --- Hugging Face ---

// The defaults of transformers' configuration class.
struct HfDecoderQuery {
  CommonDefaults common;
  HeadDefaults heads;
  int64_t num_layers = 0;
  double default_eps = 1e-6;
  double default_theta = 10000;
  std::span<const std::string_view> rope_keys = {};  // further keys of the RoPE dictionary
};

// A spec with all its layers: pre-norms (RMS with rms_norm_eps) before both halves, attention with
// rotate-half RoPE. What remains for the family is the feed-forward half and whatever differs.
Result<ModelSpec> ParseHfDecoder(HfConfig& config, const HfDecoderQuery& query);

// The first of `keys` that is present, from 1 to kMaxExpertsPerLayer; `otherwise` when none is.
Result<int64_t> ParseNumExperts(HfConfig& config, std::initializer_list<std::string_view> keys,
                                int64_t otherwise);
// num_experts_per_tok, from 1 to num_experts.
Result<int64_t> ParseExpertsPerToken(HfConfig& config, int64_t num_experts, int64_t otherwise);

// A window of 1 to kMaxLength positions. GetWindow reads nothing and gives `otherwise` when the
// family does not `use` it.
Result<std::optional<int64_t>> FindWindow(HfConfig& config, std::string_view key);
Result<int64_t> GetWindow(HfConfig& config, std::string_view key, bool use, int64_t otherwise);

AttentionSpec& AttentionOf(LayerSpec& layer);

// --- GGUF ---

struct GgufDecoderQuery {
  double default_theta = 10000;
  bool yarn_truncate = true;
};

// The same from a GGUF. Biases of q, k, v and o are stated by the presence of their tensors in the
// first layer, as llama.cpp takes them.
Result<ModelSpec> ParseGgufDecoder(GgufConfig& config, const GgufDecoderQuery& query);

struct GgufMoeQuery {
  RouterScoring scoring = RouterScoring::kSoftmaxThenTopK;  // without expert_gating_func
  bool normalize_top_k = false;                             // without expert_weights_norm
  double normalize_epsilon = 0;
  // Without expert_feed_forward_length the experts have feed_forward_length, which the first
  // Qwen MoE files state as the sum over a token's experts.
  bool feed_forward_is_sum = false;
};

// expert_count, expert_used_count, expert_feed_forward_length, expert_gating_func,
// expert_weights_{norm,scale}, expert_group_{count,used_count}.
Result<MoeSpec> ParseGgufMoe(GgufConfig& config, const GgufMoeQuery& query);

// --- Names of tensors ---

template <typename T>
inline constexpr size_t kNumRules = std::tuple_size_v<T>;
template <size_t N>
inline constexpr size_t kNumRules<TensorRule[N]> = N;

// One table from several (arrays of either kind), in order: rules given first win.
template <typename... Tables>
constexpr auto JoinRules(const Tables&... tables) {
  std::array<TensorRule, (kNumRules<Tables> + ...)> joined{};
  size_t at = 0;
  const auto append = [&](const auto& table) {
    for (const TensorRule& rule : table) joined[at++] = rule;
  };
  (append(tables), ...);
  return joined;
}

inline constexpr Role kExpertGateAndUp[] = {Role::kExpertGateProj, Role::kExpertUpProj};

inline constexpr TensorRule kHfDecoderRules[] = {
    {.role = Role::kEmbedTokens, .name = "model.embed_tokens"},
    {.role = Role::kFinalNorm, .name = "model.norm"},
    {.role = Role::kLmHead, .name = "lm_head"},
    {.role = Role::kMixerPreNorm, .name = "model.layers.{layer}.input_layernorm"},
    {.role = Role::kMlpPreNorm, .name = "model.layers.{layer}.post_attention_layernorm"},
};

inline constexpr TensorRule kHfAttentionRules[] = {
    {.role = Role::kQProj, .name = "model.layers.{layer}.self_attn.q_proj"},
    {.role = Role::kKProj, .name = "model.layers.{layer}.self_attn.k_proj"},
    {.role = Role::kVProj, .name = "model.layers.{layer}.self_attn.v_proj"},
    {.role = Role::kOProj, .name = "model.layers.{layer}.self_attn.o_proj"},
    {.role = Role::kQNorm, .name = "model.layers.{layer}.self_attn.q_norm"},
    {.role = Role::kKNorm, .name = "model.layers.{layer}.self_attn.k_norm"},
};

inline constexpr TensorRule kHfDenseMlpRules[] = {
    {.role = Role::kGateProj, .name = "model.layers.{layer}.mlp.gate_proj"},
    {.role = Role::kUpProj, .name = "model.layers.{layer}.mlp.up_proj"},
    {.role = Role::kDownProj, .name = "model.layers.{layer}.mlp.down_proj"},
};

// Qwen's names, one module per expert: what transformers writes.
inline constexpr TensorRule kHfQwenExpertRules[] = {
    {.role = Role::kRouter, .name = "model.layers.{layer}.mlp.gate"},
    {.role = Role::kExpertGateProj, .name = "model.layers.{layer}.mlp.experts.{expert}.gate_proj"},
    {.role = Role::kExpertUpProj, .name = "model.layers.{layer}.mlp.experts.{expert}.up_proj"},
    {.role = Role::kExpertDownProj, .name = "model.layers.{layer}.mlp.experts.{expert}.down_proj"},
};

// The experts of a layer as transformers 5's modules hold them.
inline constexpr TensorRule kHfStackedExpertRules[] = {
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.mlp.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.mlp.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.mlp.experts.down_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true},
};

// Mixtral's names of the same: w1 is the gate, w3 the way up, w2 the way down.
inline constexpr TensorRule kHfMixtralExpertRules[] = {
    {.role = Role::kRouter, .name = "model.layers.{layer}.block_sparse_moe.gate"},
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1"},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3"},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2"},
};

inline constexpr TensorRule kGgufDecoderRules[] = {
    {.role = Role::kEmbedTokens, .name = "token_embd"},
    {.role = Role::kFinalNorm, .name = "output_norm"},
    {.role = Role::kLmHead, .name = "output"},
    {.role = Role::kMixerPreNorm, .name = "blk.{layer}.attn_norm"},
    {.role = Role::kMlpPreNorm, .name = "blk.{layer}.ffn_norm"},
};

inline constexpr TensorRule kGgufAttentionRules[] = {
    {.role = Role::kQProj, .name = "blk.{layer}.attn_q"},
    {.role = Role::kKProj, .name = "blk.{layer}.attn_k"},
    {.role = Role::kVProj, .name = "blk.{layer}.attn_v"},
    {.role = Role::kOProj, .name = "blk.{layer}.attn_output"},
    {.role = Role::kQNorm, .name = "blk.{layer}.attn_q_norm"},
    {.role = Role::kKNorm, .name = "blk.{layer}.attn_k_norm"},
};

// Of models converted from the pair-permuted layout (Llama and what llama.cpp derives from it).
inline constexpr TensorRule kGgufPairedAttentionRules[] = {
    {.role = Role::kQProj, .name = "blk.{layer}.attn_q", .row_order = RowOrder::kInterleavedHalves},
    {.role = Role::kKProj, .name = "blk.{layer}.attn_k", .row_order = RowOrder::kInterleavedHalves},
    {.role = Role::kVProj, .name = "blk.{layer}.attn_v"},
    {.role = Role::kOProj, .name = "blk.{layer}.attn_output"},
};

inline constexpr TensorRule kGgufDenseMlpRules[] = {
    {.role = Role::kGateProj, .name = "blk.{layer}.ffn_gate"},
    {.role = Role::kUpProj, .name = "blk.{layer}.ffn_up"},
    {.role = Role::kDownProj, .name = "blk.{layer}.ffn_down"},
};

inline constexpr TensorRule kGgufExpertRules[] = {
    {.role = Role::kRouter, .name = "blk.{layer}.ffn_gate_inp"},
    {.role = Role::kExpertGateProj, .name = "blk.{layer}.ffn_gate_exps", .stacked_experts = true},
    {.role = Role::kExpertUpProj, .name = "blk.{layer}.ffn_up_exps", .stacked_experts = true},
    {.role = Role::kExpertDownProj, .name = "blk.{layer}.ffn_down_exps", .stacked_experts = true},
    {.role = Role::kExpertGateProj,
     .name = "blk.{layer}.ffn_gate_up_exps",
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertUpProj,
     .name = "blk.{layer}.ffn_gate_up_exps",
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    // One tensor per expert: Mixtral files of before April 2024.
    {.role = Role::kExpertGateProj, .name = "blk.{layer}.ffn_gate.{expert}"},
    {.role = Role::kExpertUpProj, .name = "blk.{layer}.ffn_up.{expert}"},
    {.role = Role::kExpertDownProj, .name = "blk.{layer}.ffn_down.{expert}"},
    {.role = Role::kRouterSelectionBias,
     .name = "blk.{layer}.exp_probs_b.bias",
     .suffix = TensorSuffix::kBare},
};

inline constexpr TensorRule kGgufSharedExpertRules[] = {
    {.role = Role::kSharedGateProj, .name = "blk.{layer}.ffn_gate_shexp"},
    {.role = Role::kSharedUpProj, .name = "blk.{layer}.ffn_up_shexp"},
    {.role = Role::kSharedDownProj, .name = "blk.{layer}.ffn_down_shexp"},
    {.role = Role::kSharedExpertGate, .name = "blk.{layer}.ffn_gate_inp_shexp"},
};

}  // namespace lockstep

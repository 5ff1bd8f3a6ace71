// Taps: the names of the intermediates of one forward pass, as the reference records them, a Trace
// stores them and bisection walks them. One row per tap in kTaps, in the order of the computation.
//
// Shapes: a row is a position of this run, T of them; [T, H * D] holds the heads of a position one
// after another. A tap of a fact that the layer lacks (q_norm without a norm) is not recorded.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep {

enum class Tap : uint8_t {
  kEmbedding,
  kMixerNorm,
  kQA,
  kKvA,
  kKvB,
  kQ,
  kK,
  kV,
  kQNorm,
  kKNorm,
  kQRope,
  kKRope,
  kAttention,
  kConvIn,
  kConvOut,
  kMixer,
  kMixerPostNorm,
  kMixerResidual,
  kMlpNorm,
  kRouterLogits,
  kRouterWeights,
  kGate,
  kUp,
  kActivation,
  kExperts,
  kSharedExpert,
  kMlp,
  kMlpPostNorm,
  kOutput,
  kFinalNorm,
  kLogits,
};

struct TapInfo {
  Tap tap;
  bool per_layer;  // its full name is layers.{i}.NAME
  std::string_view name;
  std::string_view shape;
  std::string_view description;
};

// T positions, hidden hidden_size, H attention heads, K key-value heads, D head_dim (of MLA: q and
// k have nope + rope, v and the attention's output v_head_dim), I intermediate_size, E experts.
inline constexpr auto kTaps = std::to_array<TapInfo>({
    // clang-format off
    {.tap = Tap::kEmbedding, .per_layer = false, .name = "embedding", .shape = "[T, hidden]", .description = "token embedding after its scale, plus learned positions: the first layer's input"},
    {.tap = Tap::kMixerNorm, .per_layer = true, .name = "mixer_norm", .shape = "[T, hidden]", .description = "the mixer's input, after mixer_pre_norm where there is one"},
    {.tap = Tap::kQA, .per_layer = true, .name = "q_a", .shape = "[T, q_lora_rank]", .description = "MLA: q's low-rank vector, before q_a_norm"},
    {.tap = Tap::kKvA, .per_layer = true, .name = "kv_a", .shape = "[T, kv_lora_rank + qk_rope_head_dim]", .description = "MLA: the compressed key-value vector and the shared k_rope, before kv_a_norm and RoPE"},
    {.tap = Tap::kKvB, .per_layer = true, .name = "kv_b", .shape = "[T, H * (qk_nope_head_dim + v_head_dim)]", .description = "MLA: k_nope and v of every head, expanded from the normed kv_a"},
    {.tap = Tap::kQ, .per_layer = true, .name = "q", .shape = "[T, H * D]", .description = "queries as projected (bias done), before q_norm, clip_qkv and RoPE"},
    {.tap = Tap::kK, .per_layer = true, .name = "k", .shape = "[T, K * D]", .description = "keys as projected (bias done), before k_norm, clip_qkv and RoPE"},
    {.tap = Tap::kV, .per_layer = true, .name = "v", .shape = "[T, K * D]", .description = "values as projected (bias done), before clip_qkv"},
    {.tap = Tap::kQNorm, .per_layer = true, .name = "q_norm", .shape = "[T, H * D]", .description = "queries after q_norm"},
    {.tap = Tap::kKNorm, .per_layer = true, .name = "k_norm", .shape = "[T, K * D]", .description = "keys after k_norm"},
    {.tap = Tap::kQRope, .per_layer = true, .name = "q_rope", .shape = "[T, H * D]", .description = "queries after RoPE, before the query scale"},
    {.tap = Tap::kKRope, .per_layer = true, .name = "k_rope", .shape = "[T, K * D]", .description = "keys after RoPE, as the cache keeps them"},
    {.tap = Tap::kAttention, .per_layer = true, .name = "attention", .shape = "[T, H * D]", .description = "attention-weighted values of every head, before o_proj"},
    {.tap = Tap::kConvIn, .per_layer = true, .name = "conv_in", .shape = "[T, hidden]", .description = "short convolution: B * x, what the convolution reads"},
    {.tap = Tap::kConvOut, .per_layer = true, .name = "conv_out", .shape = "[T, hidden]", .description = "short convolution: what the convolution gave, before the gate C"},
    {.tap = Tap::kMixer, .per_layer = true, .name = "mixer", .shape = "[T, hidden]", .description = "the mixer's output (after o_proj or out_proj)"},
    {.tap = Tap::kMixerPostNorm, .per_layer = true, .name = "mixer_post_norm", .shape = "[T, hidden]", .description = "the mixer's output after mixer_post_norm"},
    {.tap = Tap::kMixerResidual, .per_layer = true, .name = "mixer_residual", .shape = "[T, hidden]", .description = "the residual stream after the mixer's half has joined it (sequential wiring)"},
    {.tap = Tap::kMlpNorm, .per_layer = true, .name = "mlp_norm", .shape = "[T, hidden]", .description = "the MLP's input, after mlp_pre_norm where there is one"},
    {.tap = Tap::kRouterLogits, .per_layer = true, .name = "router_logits", .shape = "[T, E]", .description = "MoE: the router's linear layer (bias done), before scoring"},
    {.tap = Tap::kRouterWeights, .per_layer = true, .name = "router_weights", .shape = "[T, E]", .description = "MoE: final weight of every expert, 0 for those not chosen"},
    {.tap = Tap::kGate, .per_layer = true, .name = "gate", .shape = "[T, I]", .description = "gate projection, before the activation (dense gated MLP)"},
    {.tap = Tap::kUp, .per_layer = true, .name = "up", .shape = "[T, I]", .description = "up projection, before the activation where it is not gated (dense MLP)"},
    {.tap = Tap::kActivation, .per_layer = true, .name = "activation", .shape = "[T, I]", .description = "what down_proj reads: activation(gate) * up, or activation(up) (dense MLP)"},
    {.tap = Tap::kExperts, .per_layer = true, .name = "experts", .shape = "[T, hidden]", .description = "MoE: weighted sum of the chosen experts' outputs"},
    {.tap = Tap::kSharedExpert, .per_layer = true, .name = "shared_expert", .shape = "[T, hidden]", .description = "MoE: the shared expert's output, after its sigmoid gate"},
    {.tap = Tap::kMlp, .per_layer = true, .name = "mlp", .shape = "[T, hidden]", .description = "the feed-forward half's output (experts and shared expert together)"},
    {.tap = Tap::kMlpPostNorm, .per_layer = true, .name = "mlp_post_norm", .shape = "[T, hidden]", .description = "the feed-forward half's output after mlp_post_norm"},
    {.tap = Tap::kOutput, .per_layer = true, .name = "output", .shape = "[T, hidden]", .description = "the residual stream after the layer"},
    {.tap = Tap::kFinalNorm, .per_layer = false, .name = "final_norm", .shape = "[T, hidden]", .description = "the residual stream after the final norm: the head's input"},
    {.tap = Tap::kLogits, .per_layer = false, .name = "logits", .shape = "[T, vocab_size]", .description = "logits after scale and soft cap"},
    // clang-format on
});
inline constexpr size_t kNumTaps = kTaps.size();

constexpr const TapInfo& InfoOf(Tap tap) { return kTaps[static_cast<size_t>(tap)]; }

static_assert(
    [] {
      for (size_t i = 0; i < kNumTaps; ++i)
        if (kTaps[i].tap != static_cast<Tap>(i)) return false;
      return kTaps.back().tap == Tap::kLogits;
    }(),
    "kTaps holds one row per Tap, in the order of the enum");

// "layers.3.q_rope", or "logits" (layer is not read for a tap of the whole model).
inline std::string TapName(Tap tap, int layer = -1) {
  const TapInfo& info = InfoOf(tap);
  if (!info.per_layer) return std::string(info.name);
  return "layers." + std::to_string(layer) + "." + std::string(info.name);
}

struct TapPlace {
  Tap tap;
  int layer = -1;  // -1: a tap of the whole model
  bool operator==(const TapPlace&) const = default;
};

// The inverse of TapName; absent for any other text.
inline std::optional<TapPlace> ParseTapName(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  int layer = -1;
  if (name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    const size_t digits = static_cast<size_t>(end - name.data());
    if (error != std::errc{} || layer < 0 || digits >= name.size() || name[digits] != '.')
      return std::nullopt;
    if (name.front() == '-' || (digits > 1 && name.front() == '0')) return std::nullopt;
    name.remove_prefix(digits + 1);
  }
  const auto row = std::find_if(kTaps.begin(), kTaps.end(), [&](const TapInfo& info) {
    return info.name == name && info.per_layer == (layer >= 0);
  });
  if (row == kTaps.end()) return std::nullopt;
  return TapPlace{row->tap, layer};
}

}  // namespace lockstep

#include "spec/weights.h"

#include <fmt/format.h>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr RoleInfo kRoles[] = {
    {Role::kEmbedTokens, "embed_tokens", LedgerPart::kEmbedding},
    {Role::kEmbedPositions, "embed_positions", LedgerPart::kPositions},
    {Role::kFinalNorm, "final_norm", LedgerPart::kNorms},
    {Role::kLmHead, "lm_head", LedgerPart::kHead},
    {Role::kMixerPreNorm, "mixer_pre_norm", LedgerPart::kNorms},
    {Role::kMixerPostNorm, "mixer_post_norm", LedgerPart::kNorms},
    {Role::kMlpPreNorm, "mlp_pre_norm", LedgerPart::kNorms},
    {Role::kMlpPostNorm, "mlp_post_norm", LedgerPart::kNorms},
    {Role::kQProj, "q_proj", LedgerPart::kMixer},
    {Role::kKProj, "k_proj", LedgerPart::kMixer},
    {Role::kVProj, "v_proj", LedgerPart::kMixer},
    {Role::kOProj, "o_proj", LedgerPart::kMixer},
    {Role::kQNorm, "q_norm", LedgerPart::kNorms},
    {Role::kKNorm, "k_norm", LedgerPart::kNorms},
    {Role::kSinks, "sinks", LedgerPart::kMixer},
    {Role::kQAProj, "q_a_proj", LedgerPart::kMixer},
    {Role::kQANorm, "q_a_norm", LedgerPart::kNorms},
    {Role::kQBProj, "q_b_proj", LedgerPart::kMixer},
    {Role::kKvAProj, "kv_a_proj", LedgerPart::kMixer},
    {Role::kKvANorm, "kv_a_norm", LedgerPart::kNorms},
    {Role::kKvBProj, "kv_b_proj", LedgerPart::kMixer},
    {Role::kConvInProj, "conv_in_proj", LedgerPart::kMixer},
    {Role::kConv, "conv", LedgerPart::kMixer},
    {Role::kConvOutProj, "conv_out_proj", LedgerPart::kMixer},
    {Role::kGateProj, "gate_proj", LedgerPart::kMlp},
    {Role::kUpProj, "up_proj", LedgerPart::kMlp},
    {Role::kDownProj, "down_proj", LedgerPart::kMlp},
    {Role::kRouter, "router", LedgerPart::kMlp},
    {Role::kRouterSelectionBias, "router_selection_bias", LedgerPart::kMlp},
    {Role::kExpertGateProj, "gate_proj", LedgerPart::kMlp},
    {Role::kExpertUpProj, "up_proj", LedgerPart::kMlp},
    {Role::kExpertDownProj, "down_proj", LedgerPart::kMlp},
    {Role::kSharedGateProj, "shared_expert.gate_proj", LedgerPart::kMlp},
    {Role::kSharedUpProj, "shared_expert.up_proj", LedgerPart::kMlp},
    {Role::kSharedDownProj, "shared_expert.down_proj", LedgerPart::kMlp},
    {Role::kSharedExpertGate, "shared_expert_gate", LedgerPart::kMlp},
};

// Collects the slots of one layer (or of the model, layer = -1).
class Collector {
 public:
  Collector(std::vector<WeightSlot>& slots, int32_t layer) : slots_(slots), layer_(layer) {}

  void Linear(Role role, int64_t rows, int64_t cols, bool bias, int32_t expert = -1) {
    slots_.push_back({{role, Part::kWeight, layer_, expert}, rows, cols});
    if (bias) slots_.push_back({{role, Part::kBias, layer_, expert}, 1, rows});
  }
  void Vector(Role role, int64_t size) { Linear(role, 1, size, false); }
  void Norm(Role role, const std::optional<NormSpec>& norm, int64_t size) {
    if (!norm) return;
    if (norm->weight) slots_.push_back({{role, Part::kWeight, layer_, -1}, 1, size});
    if (norm->bias) slots_.push_back({{role, Part::kBias, layer_, -1}, 1, size});
  }
  void Mlp(const MlpSpec& mlp, int64_t hidden, Role gate, Role up, Role down, int32_t expert = -1) {
    if (mlp.gated) Linear(gate, mlp.intermediate_size, hidden, mlp.up_bias, expert);
    Linear(up, mlp.intermediate_size, hidden, mlp.up_bias, expert);
    Linear(down, hidden, mlp.intermediate_size, mlp.down_bias, expert);
  }

  void Mixer(const AttentionSpec& a, int64_t hidden) {
    const int64_t q_size = a.num_attention_heads * a.head_dim;
    const int64_t kv_size = a.num_key_value_heads * a.head_dim;
    const bool per_head = a.qk_norm_scope == QkNormScope::kHead;
    Linear(Role::kQProj, q_size, hidden, a.q_bias);
    Linear(Role::kKProj, kv_size, hidden, a.k_bias);
    Linear(Role::kVProj, kv_size, hidden, a.v_bias);
    Norm(Role::kQNorm, a.q_norm, per_head ? a.head_dim : q_size);
    Norm(Role::kKNorm, a.k_norm, per_head ? a.head_dim : kv_size);
    if (a.sinks) Vector(Role::kSinks, a.num_attention_heads);
    Linear(Role::kOProj, hidden, q_size, a.o_bias);
  }
  void Mixer(const MlaSpec& a, int64_t hidden) {
    const int64_t q_size = a.num_attention_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim);
    if (a.q_lora_rank) {
      Linear(Role::kQAProj, *a.q_lora_rank, hidden, a.bias);
      Norm(Role::kQANorm, a.q_a_norm, *a.q_lora_rank);
      Linear(Role::kQBProj, q_size, *a.q_lora_rank, false);
    } else {
      Linear(Role::kQProj, q_size, hidden, false);
    }
    Linear(Role::kKvAProj, a.kv_lora_rank + a.qk_rope_head_dim, hidden, a.bias);
    Norm(Role::kKvANorm, a.kv_a_norm, a.kv_lora_rank);
    Linear(Role::kKvBProj, a.num_attention_heads * (a.qk_nope_head_dim + a.v_head_dim),
           a.kv_lora_rank, false);
    Linear(Role::kOProj, hidden, a.num_attention_heads * a.v_head_dim, a.bias);
  }
  void Mixer(const ShortConvSpec& c, int64_t hidden) {
    Linear(Role::kConvInProj, 3 * hidden, hidden, c.bias);
    Linear(Role::kConv, hidden, c.kernel_size, c.bias);
    Linear(Role::kConvOutProj, hidden, hidden, c.bias);
  }

  void FeedForward(const MlpSpec& mlp, int64_t hidden) {
    Mlp(mlp, hidden, Role::kGateProj, Role::kUpProj, Role::kDownProj);
  }
  void FeedForward(const MoeSpec& moe, int64_t hidden) {
    Linear(Role::kRouter, moe.num_experts, hidden, moe.router.bias);
    if (moe.router.selection_bias) Vector(Role::kRouterSelectionBias, moe.num_experts);
    for (int32_t e = 0; e < moe.num_experts; ++e)
      Mlp(moe.expert, hidden, Role::kExpertGateProj, Role::kExpertUpProj, Role::kExpertDownProj, e);
    if (!moe.shared_expert) return;
    Mlp(moe.shared_expert->mlp, hidden, Role::kSharedGateProj, Role::kSharedUpProj,
        Role::kSharedDownProj);
    if (moe.shared_expert->sigmoid_gate) Vector(Role::kSharedExpertGate, hidden);
  }

 private:
  std::vector<WeightSlot>& slots_;
  int32_t layer_;
};

}  // namespace

const RoleInfo& InfoOf(Role role) {
  const RoleInfo& info = kRoles[static_cast<size_t>(role)];
  LS_CHECK(info.role == role, "kRoles must be in the order of the enum: {}", int(role));
  return info;
}

std::string_view LedgerPartName(LedgerPart part) {
  constexpr std::string_view kNames[] = {"embedding",   "positions", "attention",
                                         "MLP/experts", "norms",     "head"};
  return kNames[static_cast<size_t>(part)];
}

std::string ToString(const WeightId& id) {
  std::string text;
  if (id.layer >= 0) text += fmt::format("layers.{}.", id.layer);
  if (id.expert >= 0) text += fmt::format("experts.{}.", id.expert);
  return fmt::format("{}{}.{}", text, InfoOf(id.role).name,
                     id.part == Part::kWeight ? "weight" : "bias");
}

std::vector<WeightSlot> RequiredWeights(const ModelSpec& spec) {
  std::vector<WeightSlot> slots;
  const int64_t hidden = spec.embedding.hidden_size;
  Collector model(slots, -1);
  model.Linear(Role::kEmbedTokens, spec.embedding.vocab_size, hidden, false);
  if (spec.embedding.positions)
    model.Linear(Role::kEmbedPositions, spec.embedding.positions->num_positions, hidden, false);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    Collector collector(slots, static_cast<int32_t>(i));
    collector.Norm(Role::kMixerPreNorm, layer.mixer_pre_norm, hidden);
    std::visit([&](const auto& mixer) { collector.Mixer(mixer, hidden); }, layer.mixer);
    collector.Norm(Role::kMixerPostNorm, layer.mixer_post_norm, hidden);
    collector.Norm(Role::kMlpPreNorm, layer.mlp_pre_norm, hidden);
    std::visit([&](const auto& mlp) { collector.FeedForward(mlp, hidden); }, layer.mlp);
    collector.Norm(Role::kMlpPostNorm, layer.mlp_post_norm, hidden);
  }
  model.Norm(Role::kFinalNorm, spec.final_norm, hidden);
  if (!spec.lm_head.tied) {
    model.Linear(Role::kLmHead, spec.embedding.vocab_size, hidden, spec.lm_head.bias);
  } else if (spec.lm_head.bias) {
    slots.push_back({{Role::kLmHead, Part::kBias}, 1, spec.embedding.vocab_size});
  }
  return slots;
}

std::array<int64_t, kNumLedgerParts> CountParameters(const ModelSpec& spec) {
  std::array<int64_t, kNumLedgerParts> counts{};
  for (const WeightSlot& slot : RequiredWeights(spec))
    counts[static_cast<size_t>(InfoOf(slot.id.role).part)] += slot.rows * slot.cols;
  return counts;
}

}  // namespace lockstep

// ExecutionPlan: a spec and its weights as the engine runs them: matrices packed for their kernels,
// small vectors as floats. Made once when a model is loaded; read by every step.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "engine/pack.h"
#include "engine/pack_cache.h"
#include "model/weights.h"
#include "spec/model_spec.h"

namespace lockstep {

// One or more matrices over the same input, with their biases (empty: none).
struct Projection {
  PackedGroup group;
  std::vector<std::vector<float>> biases;  // per matrix, [tiles * 16] or empty
  int64_t inputs() const { return group.matrices.front().cols; }
};

// Columns of an output row: the matrices side by side, each in whole tiles.
inline int64_t WidthOf(const Projection& projection) {
  int64_t tiles = 0;
  for (const PackedMatrix& m : projection.group.matrices) tiles += m.Tiles();
  return tiles * kTileRows;
}

struct NormWeights {
  NormSpec spec;
  std::vector<float> weight;  // weight_offset + w, rounded as the spec says; ones without a weight
  std::vector<float> bias;    // empty: none
};

struct MlpPlan {
  MlpSpec spec;
  Projection in;  // gate and up, or up alone
  Projection down;
};

struct LayerPlan {
  const LayerSpec* spec = nullptr;
  std::optional<NormWeights> mixer_pre_norm, mixer_post_norm, mlp_pre_norm, mlp_post_norm;
  // Attention: q, k, v in one group. MLA: q_a (or q) and kv_a; q_b; kv_b. Short convolution:
  // in_proj.
  Projection mixer_in, mla_q_b, mla_kv_b, mixer_out;
  std::optional<NormWeights> q_norm, k_norm;  // MLA: q_a_norm, kv_a_norm
  std::vector<float> sinks;
  std::vector<float> conv, conv_bias;  // [hidden, kernel], [hidden]
  std::optional<MlpPlan> mlp;          // dense
  Projection router;
  std::vector<float> selection_bias;
  std::vector<MlpPlan> experts;
  std::optional<MlpPlan> shared_expert;
  Projection shared_gate;
};

struct ExecutionPlan {
  const ModelSpec* spec = nullptr;
  const WeightView* embedding = nullptr;  // read row by row
  const WeightView* positions = nullptr;
  std::vector<LayerPlan> layers;
  NormWeights final_norm;
  Projection head;
  PackedBytes packed;  // what the matrices of all projections lie in
  PackedFrom packed_from;
};

// fn(part, projection, share) for every projection, in the order in which a step reads them; part
// says what it is ("q, k, v"), share how much of it one token reads on average: of an expert, how
// often it is chosen.
template <typename Plan, typename Fn>
void ForEachProjection(Plan& plan, const Fn& fn) {
  const auto mlp = [&](auto& m, std::string_view in, std::string_view up, std::string_view down,
                       double share = 1) {
    fn(m.spec.gated ? in : up, m.in, share);
    fn(down, m.down, share);
  };
  for (auto& layer : plan.layers) {
    const bool conv = std::holds_alternative<ShortConvSpec>(layer.spec->mixer);
    const bool mla = std::holds_alternative<MlaSpec>(layer.spec->mixer);
    fn(conv ? "conv in" : mla ? "q_a, kv_a" : "q, k, v", layer.mixer_in, 1.0);
    if (mla && !layer.mla_q_b.group.matrices.empty()) fn("q_b", layer.mla_q_b, 1.0);
    if (mla) fn("kv_b", layer.mla_kv_b, 1.0);
    fn(conv ? "conv out" : "o", layer.mixer_out, 1.0);
    if (layer.mlp) mlp(*layer.mlp, "gate, up", "up", "down");
    if (!layer.router.group.matrices.empty()) fn("router", layer.router, 1.0);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.spec->mlp)) {
      const double share =
          static_cast<double>(moe->num_experts_per_tok) / static_cast<double>(moe->num_experts);
      for (auto& expert : layer.experts)
        mlp(expert, "expert gate, up", "expert up", "expert down", share);
    }
    if (layer.shared_expert)
      mlp(*layer.shared_expert, "shared expert gate, up", "shared expert up", "shared expert down");
    if (!layer.shared_gate.group.matrices.empty())
      fn("shared expert's gate", layer.shared_gate, 1.0);
  }
  fn("head", plan.head, 1.0);
}

// spec and weights must outlive the plan.
ExecutionPlan MakePlan(const ModelSpec& spec, const Weights& weights, ThreadPool& pool);

// The same but for the bytes: no matrix has data. Reads no large weight.
ExecutionPlan PlanLayout(const ModelSpec& spec, const Weights& weights);

}  // namespace lockstep

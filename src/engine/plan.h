// ExecutionPlan: a spec and its weights as the engine runs them: matrices packed for their kernels,
// small vectors as floats. Made once when a model is loaded; read by every step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/pack.h"
#include "model/weights.h"
#include "spec/model_spec.h"

namespace lockstep {

// One or more matrices over the same input, with their biases (empty: none).
struct Projection {
  PackedGroup group;
  std::vector<std::vector<float>> biases;  // per matrix, [tiles * 16] or empty
  int64_t inputs() const { return group.matrices.front().cols; }
};

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
  size_t packed_bytes = 0;
};

// spec and weights must outlive the plan.
ExecutionPlan MakePlan(const ModelSpec& spec, const Weights& weights, ThreadPool& pool);

}  // namespace lockstep

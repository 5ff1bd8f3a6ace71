// What MoE and QMoE share: who goes to which expert, the activation between the two matrices, and
// the sum. Shapes: T tokens, H hidden, I inter, F = 2 for swiglu (FC1 rows gate0, up0, gate1, up1,
// ...), else 1.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx_ops/operators.h"

namespace lockstep {

struct ExpertActivation {
  std::string kind;  // relu, silu, gelu (the tanh form), identity, swiglu
  float alpha = 1, beta = 0;
  std::optional<float> limit;

  int factor() const { return kind == "swiglu" ? 2 : 1; }  // F
};

ExpertActivation ExpertActivationOf(const OpCall& call);
// Attributes that MoE and QMoE share: k, activation_type, swiglu_fusion,
// swiglu_limit_after_activation.
Refusal CheckExpertAttributes(const OpCall& call);

// How a token's mixing weights come from its row of logits.
struct ExpertRouting {
  enum class Rule : uint8_t {
    kSoftmaxOfChosen,  // softmax over the k chosen
    kSoftmaxOfAll,     // softmax over all experts, the chosen ones kept
    kGiven,            // router_weights at the chosen
    kGivenNormalized,  // ... divided by their sum
  };
  int64_t k = 1;
  Rule rule = Rule::kSoftmaxOfChosen;
  bool higher_index_wins_ties = true;
};

// mix[t * num_experts + e]: 0 where token t does not go to expert e. logits and given (empty, or
// router_weights): [T, E].
std::vector<float> MixExperts(const ExpertRouting& routing, std::span<const float> logits,
                              std::span<const float> given, int64_t num_experts);

// One of the two matrices of every expert, [N, K] each.
struct ExpertMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> bias;            // [E, rows], or empty
  std::optional<int64_t> int8_block;  // its activations are rounded to int8, so many under a scale
  // Everything of one expert, [rows * cols].
  std::function<std::vector<float>(int64_t expert)> weights;
};

// [T, H], in float.
std::vector<float> RunExperts(std::span<const float> input, std::span<const float> mix,
                              int64_t num_experts, const ExpertMatrix& fc1, const ExpertMatrix& fc2,
                              const ExpertActivation& activation, ThreadPool* pool);

}  // namespace lockstep

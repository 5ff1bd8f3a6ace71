// Which experts a token goes to, and with what weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spec/model_spec.h"

namespace lockstep {

// Memory of RouteToken, kept between tokens.
struct RoutingScratch {
  std::vector<float> choice, near, weights, group, worth;
  std::vector<size_t> chosen;
  std::vector<char> kept;
};

// logits [num_experts] of one token become the weight of every expert, 0 for those not chosen. A
// NaN among them makes the weights of the first num_experts_per_tok NaN: no choice is right.
void RouteToken(const RouterSpec& router, int64_t num_experts_per_tok,
                std::span<const float> selection_bias, std::span<float> logits,
                RoutingScratch& scratch);

}  // namespace lockstep

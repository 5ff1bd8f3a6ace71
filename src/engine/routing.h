// Which experts a token goes to, and with what weight.
#pragma once

#include <cstdint>
#include <span>

#include "spec/model_spec.h"

namespace lockstep {

// logits [num_experts] of one token become the weight of every expert, 0 for those not chosen.
void RouteToken(const RouterSpec& router, int64_t num_experts_per_tok,
                std::span<const float> selection_bias, std::span<float> logits);

}  // namespace lockstep

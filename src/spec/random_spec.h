// RandomSpec: a small valid spec for property tests, from all alternatives of model_spec.h.
#pragma once

#include <cstdint>

#include "spec/model_spec.h"

namespace lockstep {

// The same seed gives the same spec on every machine. Sizes are small enough (hidden_size <= 64, at
// most 4 layers, 8 experts) that tests can fill and run the model; a failing test prints its seed.
ModelSpec RandomSpec(uint64_t seed);

}  // namespace lockstep

// RandomWeights: fp32 weights for a spec that no file has, for property tests of everything that
// computes. Drawn so that activations stay near 1 and no fact is invisible: norm weights away from
// 1, biases not 0.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/weights.h"
#include "spec/model_spec.h"

namespace lockstep {

struct OwnedWeights {
  Weights weights;  // views of `values`
  std::vector<float> values;
};

// The same spec and seed give the same bits on every machine.
std::unique_ptr<OwnedWeights> RandomWeights(const ModelSpec& spec, uint64_t seed);

}  // namespace lockstep

// KnownFaults: the catalogue (faults/catalog.h) as hypotheses about one model.
#pragma once

#include <vector>

#include "spec/model_spec.h"
#include "verify/hypothesis.h"

namespace lockstep {

// Every edit of every fault that applies to the model.
std::vector<Hypothesis> KnownFaults(const ModelSpec& spec);

}  // namespace lockstep

// CatalogueEdits: the table of known faults (faults/catalog.h) as hypotheses about one model.
#pragma once

#include <vector>

#include "spec/model_spec.h"
#include "verify/hypothesis.h"

namespace lockstep {

// Every form of every fault that applies to the model.
std::vector<Hypothesis> CatalogueEdits(const ModelSpec& spec);

}  // namespace lockstep

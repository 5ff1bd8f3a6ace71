// SystematicEdits: faults that nobody has listed, generated from the model's own field list: every
// optional fact made absent, every flag flipped, every enum's other values, every number replaced
// by what a careless port would write, every schedule of layers made uniform, shifted or inverted,
// every tensor zeroed, transposed or swapped with its twin. Tried after the catalogue.
//
// Layers that share a value are edited together first (Origin::kSystematic), then each by itself
// (Origin::kSingle). Every edit gives a valid spec that differs from the given one and from every
// other edit's, and needs no weight that the model lacks.
#pragma once

#include <vector>

#include "spec/model_spec.h"
#include "verify/hypothesis.h"

namespace lockstep {

std::vector<Hypothesis> SystematicEdits(const ModelSpec& spec);

}  // namespace lockstep

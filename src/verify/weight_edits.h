// WeightEdits: the systematic edits of weights: every tensor role zeroed, transposed where it is
// square, swapped with its twin or with the neighbouring layer's. A part of systematic_edits.h.
#pragma once

#include <string>
#include <vector>

#include "faults/edit.h"
#include "spec/model_spec.h"

namespace lockstep {

struct WeightHypothesis {
  std::vector<WeightEdit> edits;
  bool single = false;  // of one layer, where others have the same weight
  std::string sentence;
};

std::vector<WeightHypothesis> WeightEdits(const ModelSpec& spec);

}  // namespace lockstep

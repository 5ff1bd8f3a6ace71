// An edit upon a model that is loaded: the edited spec, and weights of which only those that the
// edit names are held anew, as floats; all others stay views of the checkpoint. What the reference
// is run on to see what a fault does.
#pragma once

#include <span>

#include "base/error.h"
#include "faults/edit.h"
#include "model/model.h"

namespace lockstep {

// Weights for `edited`, made from those of a model by `edits`: what `edited` does not need is
// dropped, what it needs and nobody has is an error, and so is a shape that does not fit. The
// result keeps what it made alive; whatever `weights` views must outlive it.
Result<Weights> EditedWeights(const ModelSpec& edited, const Weights& weights,
                              std::span<const WeightEdit> edits);

// The model with spec and weights edited. What the edit says of the run is the caller's to apply
// (EditedRun): a model does not say how it is run.
Result<Model> Edited(const Model& model, const Edit& edit);

}  // namespace lockstep

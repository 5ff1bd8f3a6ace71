// The places of weights as edits name them: `layers[0,2-4].experts[*].gate_proj.weight`, and the
// shorter form of the other weight after `with` or `from`: `layers[0].up_proj`. Part of the grammar
// of edit.h.
#pragma once

#include <string>
#include <string_view>

#include "faults/edit.h"

namespace lockstep {

// Fill in, and print, what WeightEdit calls the place.
Status ReadPlace(std::string_view text, WeightEdit& edit);
std::string PlaceText(const WeightEdit& edit);

// The same of the other weight. The place must have been read before.
Status ReadOther(std::string_view text, WeightEdit& edit);
std::string OtherText(const WeightEdit& edit);

// One weight for each expert; one weight for the whole model. All others: one for each layer.
bool IsExpertRole(Role role);
bool IsModelRole(Role role);

}  // namespace lockstep

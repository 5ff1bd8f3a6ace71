// Weights that lie in memory as floats, beside those of a file: dequantized, edited, taken out of a
// graph.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/weights.h"

namespace lockstep {

// Of values [rows, cols], row after row. They must stay where they are.
WeightView FloatView(std::string name, std::span<const float> values, int64_t cols);

// Binds a weight to numbers of its own, [rows, cols], which the weights keep.
void SetFloats(Weights& weights, const WeightId& id, std::vector<float> values, int64_t cols);

}  // namespace lockstep

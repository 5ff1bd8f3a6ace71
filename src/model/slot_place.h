// SlotPlace: where a rule puts one weight of a spec: the tensor's shape and the weight's strides in
// it. The one place that knows how fused, stacked, transposed and alternating tensors are laid out;
// the binding reads by it and exports write by it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arch/architecture.h"
#include "spec/weights.h"

namespace lockstep {

// Rows and columns of every weight of a spec.
using SlotShapes = std::map<WeightId, std::pair<int64_t, int64_t>>;
SlotShapes ShapesOf(const std::vector<WeightSlot>& slots);

// "model.layers.3.mlp.up_proj.weight"
std::string TensorName(const TensorRule& rule, const WeightId& id);

struct SlotPlace {
  // [experts]? [outputs of all fused roles, inputs], or transposed; of a bias [experts]? [outputs].
  std::vector<int64_t> shape;
  // Element (r, c) of the weight is stored element offset + r * row_stride + c * col_stride.
  int64_t offset = 0, row_stride = 0, col_stride = 1;
  int64_t pair_dim = 0;         // rows of a head in llama.cpp's pair order; 0: plain
  std::optional<Role> missing;  // a role that shares the tensor and that the spec does not have
};
SlotPlace PlaceSlot(const WeightSlot& slot, const TensorRule& rule, const SlotShapes& shapes,
                    const ModelSpec& spec);

// Where llama.cpp's pair order put row r: stored row 2j + t of a head is its row t * pair_dim/2 +
// j.
int64_t StoredRow(int64_t row, int64_t pair_dim);
// The row that lies there: the other direction.
int64_t RowStoredAt(int64_t stored, int64_t pair_dim);

}  // namespace lockstep

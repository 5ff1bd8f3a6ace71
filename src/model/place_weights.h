// PlaceWeights: the way back from BindWeights: given a spec and an architecture's rules, which
// tensors a checkpoint has and where in them each weight lies. Exports write what it says.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/architecture.h"
#include "base/error.h"
#include "model/weights.h"

namespace lockstep {

// Where one weight lies in a stored tensor: its element (r, c) is stored element
// offset + r' * row_stride + c * col_stride, as in WeightView.
struct PlacedWeight {
  WeightId id;
  int64_t rows = 1, cols = 0;
  int64_t offset = 0, row_stride = 0, col_stride = 1;
  int64_t pair_dim = 0;  // rows (or a bias' elements) in llama.cpp's pair order
  double addend = 0;     // stored = weight - addend
};

struct PlacedTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
  std::vector<PlacedWeight> weights;
  Role role = Role::kEmbedTokens;  // of its first weight
  Part part = Part::kWeight;
  bool matrix = false;  // its rows are inputs to a product: what types of blocks are for

  int64_t row_elements() const { return shape.back(); }
};

// In the order of the computation. Fails when the architecture has no name for a weight.
Result<std::vector<PlacedTensor>> PlaceWeights(const ModelSpec& spec,
                                               std::span<const TensorRule> rules,
                                               std::string_view place);

// Rows [first, first + count) of the stored tensor (all dimensions but the last counted as rows),
// as `type` stores them. A weight that is stored the same way in its own checkpoint is copied,
// code by code; all others go through floats. Fails where `type` cannot hold a number.
Status FillPlacedRows(const PlacedTensor& tensor, const Weights& weights, const TensorType& type,
                      int64_t first, int64_t count, std::byte* out);

}  // namespace lockstep

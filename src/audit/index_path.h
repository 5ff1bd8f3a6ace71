// IndexPath: what a graph does to whole numbers (token ids, positions) between the input that gives
// them and the rows of a table that they choose. Exporters clamp and wrap them on purpose; what
// each number becomes tells whether that changes any that the model may be given. Read by the
// search for the table of embeddings (decoder.cc) and by the comparison (compare_indices.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "audit/graph.h"

namespace lockstep {

struct IndexPath {
  int input = kNoValue;    // of token ids where there are some, else another; kNoValue: none
  std::vector<int> nodes;  // that may change the numbers, or which ones there are; in file order
  bool straight = true;    // besides them nothing moves the numbers or changes their type
};

// Back from the indices of a lookup, through operators on single elements and what moves elements.
IndexPath IndexPathTo(const Graph& graph, int indices);

// What the numbers 0, 1, ... `count` - 1 become on that way. Absent where that does not follow from
// each number alone.
std::optional<std::vector<double>> NumbersAlong(const Graph& graph, const IndexPath& path,
                                                int indices, int64_t count);

}  // namespace lockstep

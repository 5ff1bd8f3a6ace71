// Zero points of a quantized matrix that are whole steps beside those that its codes were made
// with: every number of such a block is off by the same number of steps, which a correlation hardly
// shows. Between compare_weights.cc, which tells it, and mend_weights.cc, which writes them back.
// Inside this folder only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "audit/graph.h"
#include "audit/stored_matrix.h"
#include "audit/weight_sums.h"

namespace lockstep {

struct ZeroShifts {
  int64_t off = 0;          // blocks whose zero point is another
  std::vector<int> steps;   // [rows * blocks]: how much larger each zero point should be
  std::optional<int> same;  // where all that are off are off by as much
};

// Absent where no block is off, and where the codes follow the reference's numbers under no zero
// points.
std::optional<ZeroShifts> ZeroShiftsOf(const Graph& graph, const StoredMatrix& matrix,
                                       const Rows& ref);

}  // namespace lockstep

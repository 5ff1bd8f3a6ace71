// Weights that are other numbers than the reference's and yet the same function: neurons of a
// feed-forward half or heads of attention in another order, the same in all the matrices that read
// and write them; a matrix times a factor and the next one over it; a norm's weight multiplied into
// the matrices behind it. An optimiser may do any of them; none is a fault. Read and settled
// between the comparison of weights and its telling. Inside this folder only.
#pragma once

#include "audit/audit.h"
#include "audit/graph.h"
#include "model/model.h"

namespace lockstep {

// Sets such weights to WeightState::kEquivalent, and says so in the report's notes. Only where
// every weight of the group was found and is plain numbers: what is not proved stays as it was.
void SettleEquivalents(const Model& reference, const Graph& graph, AuditReport& report);

}  // namespace lockstep

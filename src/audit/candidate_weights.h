// The reference with the candidate's own weights: its codes dequantized, its rounded numbers as
// they are. What still differs then is no matter of precision. And the rounding of activations that
// some of its operators do, for the reference to do as well.
#pragma once

#include <vector>

#include "audit/audit.h"
#include "audit/int8_rounder.h"

namespace lockstep {

struct CandidateWeights {
  Model model;  // keeps its weights alive; the reference's checkpoint must outlive it as well
  RoundedPlaces rounds;  // in front of these matrices; empty: nowhere
  // Rounded matrices whose input no value of the graph is: inside an operator.
  int64_t inside = 0;
  int64_t replaced = 0;  // matrices that are the candidate's
};

// Only what the audit calls quantized is taken over, and what is kept in 16 bits: a fault in a
// weight stays a fault, and so does a number that was rounded on its way into fp32.
Result<CandidateWeights> WithWeightsOf(const Model& reference, const OnnxModel& candidate,
                                       const AuditReport& report);

// Puts into `weights` the matrices whose numbers the audit found to be others than the reference's,
// as the candidate keeps them, where no edit of the reference gives those: faulty codes, and
// numbers that follow no rule. What the reference computes with them shows whether they are the
// whole difference. Returns which they are.
Result<std::vector<WeightId>> TakeFaultyWeights(CandidateWeights& weights,
                                                const OnnxModel& candidate,
                                                const AuditReport& report);

}  // namespace lockstep

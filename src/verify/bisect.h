// Bisect: where inside the model do reference and candidate part? Asked of a candidate whose
// intermediates are known (PromptTrace::taps or hidden): the first of them, in the order of the
// computation, that differs by more than the reference's own noise there. What lies before it is
// right, whatever the logits say. A part of diagnose.h.
#pragma once

#include <optional>
#include <span>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "reference/rounder.h"
#include "spec/taps.h"
#include "trace/trace.h"

namespace lockstep {

// Absent where no run has intermediates, or none of them differs. Of hidden states the place is the
// output of the layer that made it.
// Where the candidate rounds on purpose (`rounding`, of each run, or of none) the reference rounds
// as well; a tap then differs from `least_tolerance` on, times its largest number where that is
// above 1.
Result<std::optional<TapPlace>> FirstDifferentTap(const Model& reference,
                                                  std::span<const PromptTrace> candidate,
                                                  ThreadPool& pool,
                                                  std::span<const RounderFor> rounding = {},
                                                  double least_tolerance = 0);

}  // namespace lockstep

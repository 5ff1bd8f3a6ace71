// FitNumbers: wrong numbers that no list has. Every number of the model by itself: those of which a
// little more or a little less helps most are fitted, coarsely over two decades, then by golden
// section, as the residual is least at one place and grows away from it; what is found is written
// as the shortest decimal that explains. A part of diagnose.h.
#pragma once

#include <optional>

#include "verify/trials.h"

namespace lockstep {

// The reference with one number that gives the candidate's logits, if there is one. What was fitted
// joins the hypotheses of `trials` either way.
Result<std::optional<EditedReference>> FitNumbers(Trials& trials, const EditedReference& root);

}  // namespace lockstep

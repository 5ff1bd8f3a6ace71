// The ways by which the reference can be given a sequence, for TakePassage. Not in a batch: it
// computes the rows of one as if alone (Interpreter::RunBatch), so that there is nothing to see.
#pragma once

#include <vector>

#include "reference/interpreter.h"
#include "subjects/passage_run.h"

namespace lockstep {

std::vector<Passage> ReferencePassagesOf(const ModelSpec& spec);

// Interpreter and rounder (may be nullptr) must outlive what is made.
template <typename T>
PassageMaker ReferencePassages(Interpreter<T>& interpreter, const Rounder<T>* rounder);

extern template PassageMaker ReferencePassages(Interpreter<float>&, const Rounder<float>*);
extern template PassageMaker ReferencePassages(Interpreter<double>&, const Rounder<double>*);

}  // namespace lockstep

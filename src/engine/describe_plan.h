// PlanPart: what an ExecutionPlan does with a part of a model: from which tensor type it was packed
// into which kind, how many bytes that is, and what its kernels multiply it with. For people
// (`lockstep inspect --plan`) and for whoever counts bytes per step.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/plan.h"

namespace lockstep {

struct PlanPart {
  std::string part;       // "q, k, v"
  std::string types;      // tensor types: one, or one per matrix where they differ ("Q5_0, Q8_0")
  std::string packed;     // packed kinds, alike; "as stored" for what is read row by row
  std::string read_with;  // activations: "int8", "bf16", "fp32"; alike
  int64_t count = 0;      // groups of matrices that are alike: layers, or experts of all layers
  int64_t elements = 0;
  int64_t bytes = 0;
  double share = 1;  // of the bytes that one decode step reads (chosen experts; an embedding's row)
};

// In the order of a step, parts that are alike in all layers joined.
std::vector<PlanPart> PlanParts(const ExecutionPlan& plan, Activations activations);

}  // namespace lockstep

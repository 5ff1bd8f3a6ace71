// ReadSpec: what a checkpoint's configuration says, without its weights.
#pragma once

#include "base/error.h"
#include "formats/checkpoint.h"
#include "spec/model_spec.h"

namespace lockstep {

// arch -> validate. The checkpoint may have no tensors.
Result<ModelSpec> ReadSpec(const Checkpoint& checkpoint);

}  // namespace lockstep

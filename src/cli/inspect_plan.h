// What `lockstep inspect --plan` prints.
#pragma once

#include <string>

#include "cli/verb.h"

namespace lockstep {

// The exit code.
int InspectPlan(const std::string& path, const std::string& activations, bool json);

}  // namespace lockstep

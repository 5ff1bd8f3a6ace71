// A verification as text, for the verbs that print one.
#pragma once

#include <string>

#include "verify/verify.h"

namespace lockstep {

// The table of prompts, what they differ by, and the verdict; `verbose`: also a table of every
// step.
std::string VerificationText(const Verification& verification, bool verbose);

}  // namespace lockstep

// Report: a verification as JSON, for programs. The terminal's table is in cli/verify.cc.
#pragma once

#include "base/json.h"
#include "verify/verify.h"

namespace lockstep {

// Numbers that JSON has no word for (an infinite difference) become the string "inf".
Json ToJson(const Verification& verification);

}  // namespace lockstep

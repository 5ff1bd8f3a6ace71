// A verification as JUnit XML, which continuous integration reads: a suite for each candidate, a
// test case for each prompt.
#pragma once

#include <span>
#include <string>

#include "verify/verify.h"

namespace lockstep {

// What differs is a failure; what could not be compared is an error.
std::string JUnitReport(std::span<const Verification> verifications);

}  // namespace lockstep

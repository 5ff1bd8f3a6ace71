// For tests: the largest allocation that the program asked for. allocations_test.cc replaces
// operator new to know it.
#pragma once

#include <cstddef>

namespace lockstep {

void ForgetAllocations();
size_t LargestAllocation();  // bytes of one request since ForgetAllocations

}  // namespace lockstep

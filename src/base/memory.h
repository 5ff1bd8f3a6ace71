// How much memory is left: asked before large allocations, since Linux promises more than it has
// and ends a program that takes it at its word.
#pragma once

#include <cstdint>

namespace lockstep {

// Bytes that this process may still take: what the machine has free or can free at once, and what
// the limit of its control group leaves. A very large number where the system does not say.
uint64_t AvailableMemory();

}  // namespace lockstep

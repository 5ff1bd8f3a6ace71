// The packers of types whose values, over a scale per 16 columns, are few whole numbers: points of
// a grid (IQ1_*, IQ2_*, IQ3_*) and ternary codes (TQ*). All go into PackedKind::kGrid, which brings
// its book of 16 values along.
#pragma once

#include <span>

#include "engine/pack_codes.h"

namespace lockstep {

std::span<const CodePacker> GridPackers();

}  // namespace lockstep

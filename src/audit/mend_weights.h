// What repairs a weight of a graph that is not the reference's: its numbers in place, a constant of
// its own, a bias behind its matrix, or what its codes are read with and where they lie. Inside
// this folder only.
#pragma once

#include "audit/audit.h"
#include "audit/findings.h"
#include "audit/weight_places.h"
#include "spec/weights.h"

namespace lockstep {

// Adds to the finding's patch, or says in `how_to` why nothing does. `holder`: the weight in whose
// place this one's numbers are; nullptr: not known.
void MendWeight(const WeightPlaces& places, const WeightSlot& slot, WeightState state,
                RawFinding& raw, const WeightId* holder = nullptr);

}  // namespace lockstep

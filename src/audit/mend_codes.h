// What repairs a quantized matrix whose codes are right and are read with other scales or zero
// points, or lie in another's place. No code is made anew: how a checkpoint is rounded to few bits
// is an exporter's choice. Inside this folder only.
#pragma once

#include "audit/audit.h"
#include "audit/findings.h"
#include "audit/weight_places.h"
#include "spec/weights.h"

namespace lockstep {

// Adds to the finding's patch, or says in `how_to` why nothing does. `holder`: the weight in whose
// place these codes are; nullptr: not known.
void MendCodes(const WeightPlaces& places, const WeightSlot& slot, WeightState state,
               RawFinding& raw, const WeightId* holder);

}  // namespace lockstep

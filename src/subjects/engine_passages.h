// The ways by which the engine can be given a sequence, for TakePassage.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "subjects/passage_run.h"

namespace lockstep {

std::vector<Passage> EnginePassagesOf(const ModelSpec& spec);

// Its batch is two sequences in one walk, which needs no padding. The engine must outlive what is
// made.
PassageMaker EnginePassages(Engine& engine);

}  // namespace lockstep

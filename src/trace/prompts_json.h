// What a trace holds beside its tensors, as JSON: ids, texts, greedy tokens, noise, and rows of
// which a few ids are shown. X.json beside a trace has it (docs/formats/trace.md), and the record
// of an export, which has no tensors.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "trace/trace.h"

namespace lockstep {

Json PromptsJson(const std::vector<PromptTrace>& prompts);

// `place` opens the sentence of an error.
Result<std::vector<PromptTrace>> ReadPromptsJson(const Json& list, const std::string& place);

}  // namespace lockstep

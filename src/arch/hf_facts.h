// The facts of a spec as config.json: the way back from a family's reader, in the manner of
// gguf_facts.h: a list of keys proposes, the family's own reader reads the proposal, keys that it
// did not ask for are left out, and a spec that it does not find again has no such config.
#pragma once

#include <string_view>

#include "arch/architecture.h"
#include "base/json.h"

namespace lockstep {

// config.json without dtype and other remarks. Fails with the facts that the model type cannot
// state. `original_context` is what a GGUF says of the length that llama3's bands were made for,
// which its factors do not tell; 0: nothing. `place` opens the message.
Result<Json> StateInHf(const ModelSpec& spec, const HfArchitecture& architecture,
                       int64_t original_context, std::string_view place);

}  // namespace lockstep

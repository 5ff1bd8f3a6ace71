// What the GGUF architecture "llama" needs to know about Mixtral: its experts. Used by llama.cc.
#pragma once

#include "arch/gguf_config.h"

namespace lockstep {

// The feed-forward half of every layer when expert_count is above 0. The tensors' names are
// kGgufExpertRules (decoder.h).
Result<MoeSpec> ParseGgufMixtralExperts(GgufConfig& config);

}  // namespace lockstep

// Probes that a model's own facts ask for: short prompts in plain words cross no window, no page of
// a cache and no trained context, so that what is wrong there would not show.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spec/model_spec.h"
#include "verify/verify.h"

namespace lockstep {

struct DerivedProbes {
  std::vector<NamedPrompt> prompts;
  // Sentences: what was left out for its length, and what asks for it.
  std::vector<std::string> notes;
};

// One prompt on each side of every length where the computation changes, but none of more than
// `longest` tokens:
//   each sliding window w         w - 1 (crossed while decoding) and w + 1 (in the prompt)
//   each scaled RoPE's original context c, where the scaling or the position is new     likewise
//   learned positions p           p - steps: the last step takes the last position
//   a cache page                  kPage - 1 and kPage + 1; a single token
// `words` are ids to fill them with, repeated as needed: not empty. `steps` greedy tokens follow
// each prompt; a prompt that would pass the learned positions is not made.
DerivedProbes DeriveProbes(const ModelSpec& spec, std::span<const int32_t> words, int64_t steps,
                           int64_t longest);

// What tokenizers get wrong: bytes without a token of their own, special tokens spelled out,
// spaces and line ends. For models that tokenize.
const std::vector<NamedPrompt>& TokenizerPrompts();

}  // namespace lockstep

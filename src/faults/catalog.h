// The catalogue of known faults: THE TABLE of what real programs get wrong when they port a model,
// each as edits of a spec, a run or weights (edit.h). A verification asks which of them could have
// shown, a diagnosis tries them first, and docs/faults.md is printed from it.
//
// Adding one is one row of catalog.cc: docs/adding/fault.md. A test injects every row into every
// architecture that it applies to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faults/edit.h"
#include "spec/model_spec.h"

namespace lockstep {

// How long a prompt is for a fault to show at its last position or in the steps after it.
enum class Shows : uint8_t {
  kAnywhere,          // from the first token
  kSecondToken,       // position 0 is exact: nothing rotates, nothing is attended to but itself
  kPastWindow,        // once the narrowest window hides a position
  kPastOriginal,      // where RoPE's scaling asks for the length: past its original context
  kSecondCall,        // only in decoding, or in the second chunk of a prompt
  kSecondCallWindow,  // the same, past the narrowest window
};

struct Fault {
  std::string_view id;  // "rope-scaling-on-local-layers": what --json, reports and tests call it
  std::string_view number;  // "F1": the family; several rows are forms of one
  std::string_view name;    // a few words for a table
  std::string_view what;    // what is computed instead, one sentence
  std::string_view seen;    // where it was met, repository#number; empty: told of ports
  // The same formulas with fewer bits, as programs do on purpose: to be named, not to be blamed.
  bool precision = false;
  Shows shows;  // how long a prompt must be
  // What a model must have for it to apply, for a sentence: "a sliding window".
  std::string_view needs;
  std::string_view how;  // what it looks like, which narrows the search; a phrase
  // Each is the fault in one of its forms; none: it does not apply to this model. Each can be
  // applied to the spec, and to any weights bound to it.
  std::vector<Edit> (*edits)(const ModelSpec& spec);
};

std::span<const Fault> KnownFaults();
const Fault* FindFault(std::string_view id);  // nullptr: no such fault

// Tokens of the shortest prompt on which every form of the fault can show in this model.
int64_t ShortestPrompt(const Fault& fault, const ModelSpec& spec);

// Changes that must change nothing (but roundings): a search that blames one of them is wrong.
struct NegativeControl {
  std::string_view id;
  std::string_view name;
  std::string_view what;
  std::vector<Edit> (*edits)(const ModelSpec& spec);
};
std::span<const NegativeControl> NegativeControls();

// The page docs/faults.md.
std::string FaultsPage();

}  // namespace lockstep

// Hypothesis: one guess at what a candidate does differently: an edit of the reference, and what it
// would mean. From a static audit of an export, from the catalogue of known faults, or generated
// from the model's own field list (systematic_edits.h). diagnose.h tries them.
#pragma once

#include <string>

#include "faults/edit.h"

namespace lockstep {

// In the order in which they are tried and preferred.
enum class Origin {
  kAudit,       // what an export was seen to hold
  kCatalogue,   // a known fault
  kSystematic,  // a fact or a weight changed wherever it has the same value
  kSingle,      // the same in one layer alone
};

struct Hypothesis {
  Edit edit;
  Origin origin = Origin::kSystematic;
  std::string id;        // of the catalogue's row; empty: none
  std::string sentence;  // what it would mean
};

}  // namespace lockstep

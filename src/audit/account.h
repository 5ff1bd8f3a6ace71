// Account: every operator on the way from the token ids to the logits and the caches is one that
// the decoder's search understood (FoundDecoder::understood), or a stranger: a factor on the
// residual stream, a term on the logits, a second activation. Between decoder.h, which it runs
// until the strangers that can be looked through are, and the comparisons, which then see what the
// model has.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "audit/decoder.h"
#include "audit/findings.h"

namespace lockstep {

struct Account {
  std::unique_ptr<Graph> graph;  // with the strangers that are looked through as if not there
  FoundDecoder decoder;          // in it
  Graph::Bypassed bypassed;
  std::vector<int> strangers;  // that cannot be looked through
  std::set<int> certain;       // of them: round or reorder the stream, whatever else was found
  // The whole model was found. Where it was not, nothing is looked through, and what else is not
  // understood is only counted: it may be the model's own, in a form that is not known here.
  bool whole = false;
};

// The model must outlive the result. `notes` as FindDecoder's.
Account TakeAccount(const OnnxModel& model, const ModelSpec& spec, std::vector<std::string>& notes);

// A finding for each stranger, and for a layer that does not read what the one before it gives.
void TellStrangers(const Account& account, const ModelSpec& spec, AuditReport& report,
                   Collector& out);

}  // namespace lockstep

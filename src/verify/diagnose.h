// Diagnose: why does the candidate differ? The smallest set of edits of the reference that
// reproduces what the candidate gave, as a proof: the residual before, after each edit, and
// everything else that would explain the same numbers. "Unexplained" is an answer.
//
// The candidate is what it gave (PromptTrace): its ids, its own greedy tokens, its logits. The
// reference is a model, and is run on the candidate's tokens, so that every step can be compared,
// also after the two would have parted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "reference/rounder.h"
#include "spec/fields.h"
#include "spec/taps.h"
#include "trace/trace.h"
#include "verify/hypothesis.h"
#include "verify/subject.h"

namespace lockstep {

// One of the candidate's runs, its prompt and the tokens fed after it as the ids, with the
// intermediates of all those calls in taps.
struct DecodingRun {
  PromptTrace trace;
  RounderFor rounding;  // what the candidate rounds on purpose; or nothing
};

struct DiagnoseOptions {
  std::vector<Hypothesis> audit;  // tried first: what a static look at the candidate suggests
  bool systematic = true;         // after the catalogue, edits generated from the spec's fields
  int max_edits = 4;              // causes at once
  // No new guess is tried after that. Whether others would give the same numbers is asked for at
  // most as long as the search took, and a little.
  double seconds = 80;
  // For each run (or none): what the candidate's declared rounding may add to the tolerance.
  std::vector<double> allowed;
  // For each run (or none): what the candidate rounds on purpose, for the reference to round as
  // well, in every evaluation.
  std::vector<RounderFor> rounding;
  // Where the first difference inside is looked for when all prompts agree inside.
  std::optional<DecodingRun> decoding;
  // The tolerance is no less: two that round alike still differ in the order of their sums.
  double least_tolerance = 0;
};

enum class DiagnosisVerdict {
  kMatch,        // the unedited reference gives the candidate's numbers
  kExplained,    // an edited one does
  kUnexplained,  // no edit that was tried does
};
std::string_view DiagnosisVerdictName(DiagnosisVerdict verdict);

// How far a model is from the candidate, over every compared position of every run.
struct Distance {
  double max_abs = 0;
  double rms = 0;
  double times_tolerance =
      0;  // max over positions of |Δ| / that run's tolerance; at most 1: a match
};

struct Cause {
  Hypothesis hypothesis;
  std::vector<FieldDifference> changes;  // of the spec and the run, layers joined
  Distance after;                        // with this cause and those before it
};

// One cause replaced, or a set of edits that was tried.
struct Alternative {
  size_t replaces = 0;  // index into causes
  Hypothesis hypothesis;
  Distance distance;
};

// The first place where the unedited reference and the candidate part.
struct FirstDifference {
  std::string prompt;
  int64_t step = -1;     // greedy step; 0 is the end of the prompt; -1: inside the prompt
  int64_t position = 0;  // of the sequence
  double max_abs = 0;
  std::optional<TapPlace> tap;  // where the candidate's intermediates are known
  bool decoding = false;        // the tap differs in the calls of greedy steps alone
  std::string operation;        // what computes the tap in the candidate; empty: not known
};

struct Diagnosis {
  DiagnosisVerdict verdict = DiagnosisVerdict::kMatch;
  std::string sentence;
  Distance before, after;
  double noise = 0, tolerance = 0;             // of the run with the largest
  std::vector<Cause> causes;                   // in the order in which they lower the distance
  Edit edit;                                   // all causes together
  std::vector<Alternative> indistinguishable;  // in place of one cause they give the same numbers
  std::optional<Alternative> runner_up;        // the best of those that do not
  std::vector<Cause> nearest;                  // unexplained: the edits that come closest
  std::optional<FirstDifference> first;
  int64_t alternatives = 0, alternatives_tried = 0;  // in place of a cause
  int64_t hypotheses = 0, evaluations = 0, positions = 0;
  bool out_of_time = false;
  double seconds = 0;
};

// Fails when there is nothing to compare (no logits, logits that are no numbers, other vocabulary),
// or with Interrupted().
Result<Diagnosis> Diagnose(const Model& reference, std::span<const PromptTrace> candidate,
                           const DiagnoseOptions& options, ThreadPool& pool,
                           const Progress& progress);

Json ToJson(const Diagnosis& diagnosis);

}  // namespace lockstep

// Evidence: what a candidate gave, laid out so that hundreds of models can be held against it: the
// candidate's own tokens as sequences, its logits at each compared position, and how exact the
// comparison can be. A part of diagnose.h.
//
// With a large vocabulary the search compares a part of it (the candidate's best ids and some
// thousand fixed others); the proof compares all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "reference/evaluate.h"
#include "reference/rounder.h"
#include "trace/trace.h"

namespace lockstep {

struct Evidence {
  struct Run {
    std::string name;
    EvaluatedSequence sequence;
    std::vector<int64_t> steps;  // of each position its greedy step; -1: inside the prompt
    std::vector<float> logits;   // [positions, columns]
    double noise = 0;            // max |fp32 - fp64| of the reference at these logits
    double tolerance = 0;
    RounderFor rounding;  // of what is computed in fp32; empty: none
  };
  std::vector<Run> runs;            // the cheapest first
  std::vector<size_t> trace;        // of each run, which of the candidate's it is
  std::vector<int32_t> vocabulary;  // the ids that are compared; empty: all
  size_t columns = 0;

  int64_t Positions() const;
};

// Everything but noise and tolerance.
Result<Evidence> GatherEvidence(const ModelSpec& spec, std::span<const PromptTrace> candidate);

// How far logits are from the candidate's on one run.
struct RunScore {
  double log_rms = 0;  // mean over positions of log10(rms of Δ), not below the noise
  double squares = 0;
  double max_abs = 0;
  double times_tolerance = 0;
};
RunScore ScoreOf(const Evidence& evidence, size_t run, std::span<const float> logits);

// max |Δ| at one position.
double MaxAt(const Evidence& evidence, size_t run, size_t position, std::span<const float> logits);

// The same over every id, for the proof: `logits` is [positions, vocab_size].
double MaxOverAllIds(const Evidence& evidence, size_t run, const PromptTrace& trace,
                     std::span<const float> logits);

}  // namespace lockstep

// InSixteenBits: a graph that computes in fp16 or bf16, or keeps its cache so, against the
// reference on the graph's own weights and constants: whether 16 bits are all that is between the
// two.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "audit/audit.h"
#include "audit/candidate_weights.h"
#include "base/thread_pool.h"
#include "subjects/onnx_subject.h"
#include "subjects/reference_subject.h"
#include "subjects/sixteen_bits.h"
#include "verify/hypothesis.h"
#include "verify/verify.h"

namespace lockstep {

struct InSixteenBits {
  SixteenBits bits;
  CandidateWeights own;  // what `formulas` views must stay
  // Where its numbers are in 16 bits: the reference on the weights and constants as the graph keeps
  // them, and the candidate that owns up to its rounding. nullptr: the cache alone is,
  std::unique_ptr<ReferenceSubject> formulas;
  std::unique_ptr<SixteenBitSubject> candidate;
  Hypothesis cache;  // and this is what the reference does likewise
  std::string base;  // "with weights and constants as the candidate keeps them"; empty: the
                     // checkpoint's own
};

// `v` is what `candidate`, which runs the graph of `onnx`, gave against `reference` (the verdict:
// differs). Where 16 bits explain that, v gets the verdict and a sentence with the numbers, and
// where they do not, a note of what is left. Absent where the graph keeps nothing in 16 bits.
Result<std::optional<InSixteenBits>> CompareInSixteenBits(
    const ReferenceSubject& reference, OnnxSubject& onnx, const AuditReport& audit,
    Subject& candidate, const VerifyOptions& options, Verification& v, ThreadPool& pool,
    const Progress& progress);

}  // namespace lockstep

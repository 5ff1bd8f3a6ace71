// OwnCodes: a quantized graph against the reference on the graph's own codes: whether fewer bits in
// the weights, and in the activations where its operators round them, are all that is between the
// two.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "audit/candidate_weights.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "subjects/onnx_subject.h"
#include "subjects/reference_subject.h"
#include "verify/verify.h"

namespace lockstep {

// How far the logits of a graph with int8 activations may lie from those of the reference that
// rounds as it does: both then compute with the same codes, and only sums are in another order.
inline constexpr double kEmulatedRounding = 1e-4;

struct OwnCodes {
  CandidateWeights weights;  // Examine lets go of the model in it
  double before = 0;         // max |Δ| on the checkpoint's weights
  double plain = 0;          // on the codes
  // On the codes, activations rounded as the graph's operators do; absent where none does.
  std::optional<double> rounded;
  TieCount ties;
  // The graph's logits with and without its activations as outputs, max |Δ|; 0: the same bits.
  double moved = 0;
  // What the prompts show is explained; another way of filling the cache differs still.
  bool passage_alone = false;

  // The reference on them, under the run of `reference`. Rounds nothing by itself.
  std::unique_ptr<ReferenceSubject> Subject(const ReferenceSubject& reference,
                                            ThreadPool& pool) const;
  // "on the candidate's own codes (30 matrices), with its int8 rounding of activations"
  std::string Words() const;
};

// `v` is what `candidate`, which runs the graph of `onnx`, gave against `reference` (the verdict:
// differs). Where its codes explain that, v gets the verdict and a sentence with the numbers, and
// where they do not, a note of what is left. Absent where no weight of the graph is quantized.
Result<std::optional<OwnCodes>> CompareOnOwnCodes(const ReferenceSubject& reference,
                                                  OnnxSubject& onnx, const AuditReport& audit,
                                                  Subject& candidate, const VerifyOptions& options,
                                                  Verification& v, ThreadPool& pool,
                                                  const Progress& progress);

// Without the weights.
Json ToJson(const OwnCodes& codes);

}  // namespace lockstep

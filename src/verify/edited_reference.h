// EditedReference: the reference with some edits, held against the evidence: its scores, and its
// residual streams, from which further edits are computed. A part of diagnose.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "faults/edit.h"
#include "model/model.h"
#include "reference/evaluate.h"
#include "verify/diagnose.h"
#include "verify/evidence.h"

namespace lockstep {

struct EditedReference {
  Edit edit;
  std::vector<size_t> hypotheses;  // that made it, as the search numbers them
  ModelSpec spec;
  RunSpec run;
  std::shared_ptr<const Weights> weights;
  std::vector<std::shared_ptr<const Weights>> parents;  // weights that `weights` may view
  std::vector<Stream> streams;                          // one per run of the evidence
  std::vector<RunScore> scores;                         // likewise

  double LogRms() const;          // mean over runs
  double TimesTolerance() const;  // max over runs
};

// The unedited one; the model must outlive it.
EditedReference Unedited(const Model& model);

// `base` with one more edit, without streams and scores. Absent when the edit does not apply, or
// changes no logit. `first` receives where to begin (Evaluate).
std::optional<EditedReference> WithEdit(const EditedReference& base, const Edit& edit, int& first);

// Logits [positions, columns] of one run of the evidence. `base` is the one that `first` was found
// against; nullptr: from the tokens on. All ids of the vocabulary with `all_ids`. In fp32 they are
// rounded as the candidate rounds, where that is known of the run.
template <typename T>
Result<std::vector<T>> LogitsOf(const EditedReference& edited, const Evidence& evidence, size_t run,
                                ThreadPool& pool, int first = -1,
                                const EditedReference* base = nullptr, Stream* keep = nullptr,
                                bool all_ids = false);

// Fills streams and scores.
Status Settle(EditedReference& edited, const Evidence& evidence, ThreadPool& pool);

// What fp32 differs from fp64 by at the run's logits, both without rounding on purpose.
Result<double> NoiseOf(const EditedReference& edited, const Evidence& evidence, size_t run,
                       ThreadPool& pool);

// Of every run its rounding, noise and tolerance: that of the noise of the unedited model, and what
// the candidate is allowed in addition, but no less than the options ask.
Status MeasureNoise(const EditedReference& unedited, const DiagnoseOptions& options,
                    Evidence& evidence, ThreadPool& pool);

}  // namespace lockstep

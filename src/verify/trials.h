// Trials: what a diagnosis does over and over: edits of the reference held against the evidence, at
// once where the model is small, on the cheapest runs first. A part of diagnose.h; what to try, and
// what to make of it, is decided there and in fit_number.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "verify/diagnose.h"
#include "verify/edited_reference.h"
#include "verify/evidence.h"

namespace lockstep {

// A step of the search must lower the residual by this many decades to count as one.
inline constexpr double kLeastGain = 0.01;
// An edit may amplify rounding: its own noise is measured where it comes this close.
inline constexpr double kNearlyThere = 50;

struct Trial {
  size_t node = 0, hypothesis = 0;
  double gain = 0;                        // decades of the screen's residual
  std::optional<EditedReference> edited;  // scored on every run
};

class Trials {
 public:
  // All must outlive it.
  Trials(const Model& model, std::span<const PromptTrace> candidate, const DiagnoseOptions& options,
         ThreadPool& pool, const Progress& progress);

  // Gathers the evidence, measures the noise; the unedited reference.
  Result<EditedReference> Begin();
  // Of those that edit the model alike the first is kept, but every known fault has its name.
  void CollectHypotheses();
  std::vector<size_t> Of(Origin origin) const;  // indices of hypotheses_

  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool OutOfTime() const { return Seconds() > deadline_; }
  Distance DistanceOf(const EditedReference& edited) const;
  bool IsSmall() const { return small_; }

  // The cheapest runs on which `node` is not yet right.
  std::vector<size_t> Screen(const EditedReference& node) const;

  // Every hypothesis on top of `node`, on the screen; the `keep` most promising on every run.
  Result<std::vector<Trial>> Expand(const EditedReference& node, size_t node_index,
                                    std::span<const size_t> hypotheses, size_t keep);

  // Within the tolerance on every run; where the edit amplifies rounding, within its own.
  Result<bool> Reaches(const EditedReference& edited);
  // The same over every id of the vocabulary.
  Result<bool> Proven(const EditedReference& edited);

  // The reference with these hypotheses in this order, scored; absent where one does not apply.
  Result<std::optional<EditedReference>> Build(const EditedReference& root,
                                               std::span<const size_t> hypotheses);

  // Calls fn(i, pool) for every i, as this model is best computed.
  template <typename Fn>
  Status ForEach(size_t n, std::string_view doing, const Fn& fn) {
    if (!progress_(doing, 0, static_cast<int64_t>(n))) return tl::unexpected(Interrupted());
    if (IsSmall()) {
      pool_.For(n, [&](size_t i) {
        if (OutOfTime()) return;
        ThreadPool alone(1);
        fn(i, alone);
      });
      return {};
    }
    for (size_t i = 0; i < n && !OutOfTime(); ++i) {
      if (!progress_(doing, static_cast<int64_t>(i), static_cast<int64_t>(n)))
        return tl::unexpected(Interrupted());
      fn(i, pool_);
    }
    return {};
  }

  const Model& model_;
  const std::span<const PromptTrace> candidate_;
  const DiagnoseOptions& options_;
  ThreadPool& pool_;
  const Progress& progress_;
  const std::chrono::steady_clock::time_point start_;
  double deadline_;  // in Seconds()
  bool small_ = false;
  Evidence evidence_;
  Distance before_;  // of the unedited reference
  std::vector<Hypothesis> hypotheses_;
  std::atomic<int64_t> evaluations_ = 0, tried_ = 0;  // all; of the last Expand
};

}  // namespace lockstep

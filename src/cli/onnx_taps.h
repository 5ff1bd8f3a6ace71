// OnnxTaps: an exported decoder's intermediates under the reference's names, so that a diagnosis
// can tell where inside the model the two part (verify/bisect.h). The audit says which value of the
// graph is which tap (audit/taps_of.h), ONNX Runtime computes them.
//
// Taps are an extra: what cannot be had leaves the run as it was, with a sentence in notes().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "audit/decoder.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "reference/rounder.h"
#include "subjects/onnx_subject.h"
#include "trace/trace.h"

namespace lockstep {

class OnnxTaps {
 public:
  // `decoder` is what the audit found in the candidate's graph. The candidate must outlive this.
  OnnxTaps(OnnxSubject& candidate, const FoundDecoder& decoder);

  // Fills run.taps. Where all of them would take too much memory, the residual stream between the
  // layers first, and then what lies inside the layer that differs first from `reference`, rounded
  // by `rounder` as the graph rounds to int8 (absent: there is none). Fails with Interrupted()
  // alone.
  Status AddTo(PromptTrace& run, const Model& reference, ThreadPool& pool, const Progress& progress,
               const RounderFor& rounder = {}, double least_tolerance = 0);

  // `run` as one prompt: its ids and the tokens that it was fed step by step, with the values that
  // the graph had in those calls, one behind the other, in taps, and the last step's logits. What
  // only a cache spoils shows there, and nowhere in the prompt's own call. Absent where no step was
  // taken or nothing can be read.
  Result<std::optional<PromptTrace>> Decoding(const PromptTrace& run, const Model& reference,
                                              ThreadPool& pool, const Progress& progress,
                                              const RounderFor& rounder = {},
                                              double least_tolerance = 0);

  // The node that computes a tap: `MatMul "/model/layers.0/mlp/gate_proj/MatMul"`; or nothing.
  std::string OperationAt(const TapPlace& place) const;

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // AddTo, of ids whose first `prompt` come in one call, and the others one by one.
  Status AddTo(PromptTrace& run, size_t prompt, const Model& reference, ThreadPool& pool,
               const Progress& progress, const RounderFor& rounder, double least_tolerance);
  // Those that `wanted` says true of and that have the shape of a tap.
  template <typename Wanted>
  Result<std::map<std::string, TraceTensor>> Read(const PromptTrace& run, size_t prompt,
                                                  const Wanted& wanted, const Progress& progress);

  OnnxSubject& candidate_;
  std::map<std::string, std::string> values_;  // TapName -> value
  bool narrow_ = false, int8_ = false;         // what it computes in
  std::vector<std::string> notes_;
};

// A value of a graph after one prompt of `ids` tokens, as [ids, columns]: from [1, ids, columns],
// [1, ids, heads, D], [1, heads, ids, D] or [ids * heads, D]. Absent for another shape, and where
// the shape does not say which dimension the tokens are in.
std::optional<TraceTensor> RowsOfTokens(const TraceTensor& value, int64_t ids);

}  // namespace lockstep

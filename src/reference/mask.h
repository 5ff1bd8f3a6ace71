// The mask written out, for runs that mask as no run should (the second half of RunSpec). The
// interpreter's own way is a range of keys, and needs none of this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "spec/run_spec.h"

namespace lockstep {

// The run masks in another way than "position p sees p and those before it, within the window".
bool NeedsMask(const RunSpec& run);

struct QueryPlace {
  int64_t call_first;  // position of the first token of the query's forward pass
  int64_t position;    // the query's own
};

// Whether the query sees the key of position `key`.
bool Sees(const RunSpec& run, const std::optional<int64_t>& window, const QueryPlace& query,
          int64_t key);

// Soft cap and mask of one query's scaled scores, in the run's order; scores[j] is of position j.
template <typename T>
void Mask(const RunSpec& run, const std::optional<int64_t>& window,
          const std::optional<double>& softcap, const QueryPlace& query, std::span<T> scores);

}  // namespace lockstep

// TakePassage: one probe by another way than whole (Passage), over whatever keeps a cache. The
// order of calls is decided here, once for all subjects; a subject gives the sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "verify/subject.h"

namespace lockstep {

using LogitRows = std::vector<std::vector<double>>;  // [positions, vocab_size]

// A sequence with a cache of its own. Numbers that are none are given as they are.
class PassageSequence {
 public:
  virtual ~PassageSequence() = default;
  // One call. The logits of every id's position where `all`, else of the last alone.
  virtual Result<LogitRows> Append(std::span<const int32_t> ids, bool all) = 0;
  // Forgets everything from position `length` on.
  virtual Status CutBack(int64_t length) = 0;
};

// Two sequences in one batch, of which the first is asked about.
class PassageBatch {
 public:
  virtual ~PassageBatch() = default;
  // One call for both, padded where one has fewer ids. Logits of the first's, as of Append above.
  virtual Result<LogitRows> Append(std::span<const int32_t> first, std::span<const int32_t> second,
                                   bool all) = 0;
};

// `capacity` is the most positions that it will hold. `batch` may be empty.
struct PassageMaker {
  std::function<Result<std::unique_ptr<PassageSequence>>(int64_t capacity)> sequence;
  std::function<Result<std::unique_ptr<PassageBatch>>(int64_t capacity)> batch;
};

// At most `steps` greedy tokens (what the context leaves room for).
Result<PromptTrace> TakePassage(const Probe& probe, int64_t steps, const PassageMaker& maker,
                                const Progress& progress);

}  // namespace lockstep

// LogitsSource: a model as perplexity sees it: ids in, rows of logits out, by the reference or by
// the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/matrix_view.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "model/model.h"

namespace lockstep {

class LogitsSource {
 public:
  virtual ~LogitsSource() = default;
  virtual int64_t vocab_size() const = 0;
  virtual std::string Name()
      const = 0;  // "engine, int8 activations, bf16 keys and values, avx512vnni"
  // A sequence's numbers depend on how it is cut into calls: it must be read in one.
  virtual bool one_call() const = 0;
  virtual std::optional<int64_t> limit() const = 0;  // positions of a sequence
  // Rows are log-probabilities, and what is least likely in a row is all that lies below.
  virtual bool cut_log_probabilities() const { return false; }
  // Forgets the sequence.
  virtual void Reset() = 0;
  // Appends ids: with `wanted` the logits after each, [ids.size(), vocab_size], valid until the
  // next call; else no rows.
  virtual Result<MatrixView<const float>> Append(std::span<const int32_t> ids, bool wanted) = 0;
};

// Model and pool must outlive the source.
std::unique_ptr<LogitsSource> ReferenceLogits(const Model& model, ThreadPool& pool);
Result<std::unique_ptr<LogitsSource>> EngineLogits(const Model& model,
                                                   const EngineOptions& options);

}  // namespace lockstep

// Interpreter: what a ModelSpec means, computed plainly. One formula per operation (ops.h), each
// with its source; every intermediate is a tap. It is the truth that everything else is compared
// with, so it shares no numeric code with the engine or the exporters.
//
// Numbers do not depend on the number of threads, on how a sequence is cut into calls, or on what
// else was run: each output element is one fixed sequence of operations. The one exception is the
// definition's own: dynamic RoPE and longrope choose their frequencies by the length of the whole
// call.
//
// Interpreter<float> is the fp32 reference; Interpreter<double> measures its noise. RoPE angles are
// fp32 in both, as transformers computes them under every dtype.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/matrix_view.h"
#include "base/thread_pool.h"
#include "model/weights.h"
#include "reference/rounder.h"
#include "spec/model_spec.h"
#include "spec/run_spec.h"
#include "spec/taps.h"

namespace lockstep {

// Receives intermediates. Tensors arrive per call of Append, and per chunk of a long call: `first`
// is the position in the sequence of their first row.
template <typename T>
class TapSink {
 public:
  virtual ~TapSink() = default;
  virtual bool Wants(Tap tap, int layer) const = 0;  // layer -1 for taps of the whole model
  virtual void Put(Tap tap, int layer, int64_t first, MatrixView<const T> rows) = 0;
};

// One sequence's memory: keys and values as they were written (k after RoPE), and the convolutions'
// inputs. Rows of all positions are kept, also outside a sliding window, so that Truncate is exact.
template <typename T>
struct Sequence {
  struct Layer {
    std::vector<T> k;  // attention: [position, num_key_value_heads * head_dim]; MLA: expanded keys
    std::vector<T> v;  // attention: likewise; MLA: [position, heads * v_head_dim]
    std::vector<T> conv;  // short convolution: B * x, [position, hidden_size]
  };
  std::vector<Layer> layers;
  int64_t length = 0;
};

enum class LogitsFor { kNone, kLast, kAll };

// The most positions a spec allows, or no limit (dynamic RoPE stretches itself).
std::optional<int64_t> ContextLimit(const ModelSpec& spec);

template <typename T>
class Interpreter {
 public:
  // All three must outlive the interpreter. The spec must be valid and the weights bound to a spec
  // that needs the same weights (a fault may have edited it since). A run that is not the default
  // (and valid) computes as it says; its padding and cache are the caller's to arrange.
  Interpreter(const ModelSpec& spec, const Weights& weights, ThreadPool& pool,
              const RunSpec& run = {});
  ~Interpreter();

  Sequence<T> NewSequence() const;

  // Runs `ids` after what the sequence holds and keeps their keys and values. Returns logits
  // [1 or ids.size(), vocab_size], owned by the interpreter and valid until its next call.
  // Errors (the sequence is unchanged): no ids, an id outside the vocabulary, a length past the
  // learned positions or the context; the message has the numbers. With a rounder what is computed
  // is no longer the truth, but as far from it as the rounder's precision.
  Result<MatrixView<const T>> Append(Sequence<T>& sequence, std::span<const int32_t> ids,
                                     LogitsFor wanted = LogitsFor::kLast,
                                     TapSink<T>* taps = nullptr,
                                     const Rounder<T>* rounder = nullptr);

  // Forgets everything from position `length` on: the next Append continues there.
  void Truncate(Sequence<T>& sequence, int64_t length) const;

  // A padded batch in one call: row b of `ids` counts where `mask` is not 0. Each row is computed
  // as if alone: padding takes no position and is seen by no one. Logits of padding are 0. ids,
  // mask: [batch * length]; returns [batch * length, vocab_size].
  Result<std::vector<T>> RunBatch(std::span<const int32_t> ids, std::span<const uint8_t> mask,
                                  int64_t batch);

  // One forward pass over a whole sequence in its parts, for callers that repeat some of it
  // (reference/evaluate.h). Together they give what one Append of all ids gives, bit for bit.
  //
  // The stream in front of the first layer, [ids, hidden_size]. Errors as of Append.
  Result<std::vector<T>> Embed(std::span<const int32_t> ids);
  // x [positions, hidden_size], the stream in front of layer `first`, becomes that behind the last,
  // or in front of layer `end`.
  void RunLayers(int first, MatrixView<T> x, TapSink<T>* taps = nullptr,
                 const Rounder<T>* rounder = nullptr, std::optional<int> end = std::nullopt);
  // Logits [x.rows, vocabulary] of rows of the stream behind the last layer, at those ids alone, or
  // at all of them when none are given. A rounder is told the rows' positions.
  std::vector<T> Head(MatrixView<const T> x, std::span<const int32_t> vocabulary = {},
                      const Rounder<T>* rounder = nullptr, std::span<const int64_t> positions = {});

  const ModelSpec& spec() const { return spec_; }
  const RunSpec& run() const { return run_; }

 private:
  struct Scratch;
  const ModelSpec& spec_;
  const Weights& weights_;
  ThreadPool& pool_;
  const RunSpec run_;
  std::unique_ptr<Scratch> scratch_;
};

extern template class Interpreter<float>;
extern template class Interpreter<double>;

}  // namespace lockstep

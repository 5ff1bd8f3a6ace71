// Evaluate: the logits of many slightly different models on the same tokens, each computed from the
// first layer on that differs. A diagnosis asks for hundreds: it keeps the residual stream of one
// model (Stream) and begins every edited one where the edit begins.
//
// All tokens of a sequence go through the model at once, which changes no number (interpreter.h),
// except with dynamic RoPE and longrope, and where a run's mask or cache is wrong: there it is the
// prompt and then one token at a time, as a runtime with a cache is called.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/weights.h"
#include "reference/rounder.h"
#include "spec/model_spec.h"
#include "spec/run_spec.h"

namespace lockstep {

// One sequence, and where its logits are wanted.
struct EvaluatedSequence {
  std::vector<int32_t> ids;        // a prompt and the tokens that followed it
  int64_t prompt = 0;              // of ids, how many are the prompt; at least 1
  std::vector<int64_t> positions;  // increasing, below ids.size()
};

// The residual stream of a sequence in front of each layer, and behind the last:
// [layers + 1][positions * hidden_size].
struct Stream {
  std::vector<std::vector<float>> before;
};

// The first layer in front of which the streams of two models differ: -1 where the embedding does
// already, the number of layers where only the final norm or the head do. `changed` are weights
// whose values differ. Absent when no logit can differ.
std::optional<int> FirstDifferentLayer(const ModelSpec& a, const ModelSpec& b,
                                       std::span<const WeightId> changed);

// Logits [positions, vocabulary] (all ids when none are given). `first` and `stream` say where to
// begin: in front of layer `first`, with the stream of a model that is the same up to there; -1:
// from the tokens on, and then `keep` receives the stream. What depends on calls neither keeps a
// stream nor begins at one. With a rounder the stream must be of a model that was rounded alike.
template <typename T>
Result<std::vector<T>> Evaluate(const ModelSpec& spec, const Weights& weights, ThreadPool& pool,
                                const EvaluatedSequence& sequence,
                                std::span<const int32_t> vocabulary, const RunSpec& run = {},
                                int first = -1, const Stream* stream = nullptr,
                                Stream* keep = nullptr, const Rounder<T>* rounder = nullptr);

}  // namespace lockstep

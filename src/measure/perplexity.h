// Perplexity: how well a model foretells a text, and how far its distributions lie from another
// model's on the same text.
//
// The text's ids are cut into windows of `context` ids. Each window is read into an empty sequence;
// what counts are the ids in its later part, each foretold by the logits of the one before it:
//   without a stride  windows follow each other and the ids [context / 2 + 1, context) of each
//   count,
//                     as llama.cpp's llama-perplexity does; a rest shorter than a window is left
//                     out
//   with a stride     windows begin every `stride` ids and count what no window before them did:
//                     every id of the text but the first counts once, as in transformers' guide
// Where the text begins with a begin-of-text id, so does every window, in place of its first id.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "measure/logits_source.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

// A text as ids. bytes_before[i]: how much of the text the ids [0, i) cover; its last entry is the
// text's length.
struct TextIds {
  std::vector<int32_t> ids;
  std::vector<int64_t> bytes_before;
  std::optional<int32_t> bos;  // ids begin with it
};
// Special tokens written in the text are plain text. An end-of-text id that the tokenizer adds is
// dropped. `bos` is the model's.
Result<TextIds> EncodeForPerplexity(const Tokenizer& tokenizer, std::string_view text,
                                    std::optional<int64_t> bos);

struct TextWindow {
  int64_t begin = 0, size = 0;
  int64_t first = 1;  // ids [first, size) of the window count
};
// Fails with a sentence when the text gives no window. context >= 2; stride in [1, context), or 0:
// none.
Result<std::vector<TextWindow>> CutIntoWindows(int64_t ids, int64_t context, int64_t stride);

// Of values that are taken as independent: the error is the standard error of the mean.
struct Mean {
  double mean = 0, error = 0;
};
Mean MeanOf(std::span<const double> values);

struct Perplexity {
  std::string arithmetic;
  Mean loss;  // nats per id that counts
  double bits_per_byte = 0;
  double perplexity() const;
  double error() const;  // of the perplexity: its value times the error of the loss
};

// Of the model (q) against another (p): KL(p || q) in nats. Where p's log-probabilities are cut,
// both are taken over the ids that p kept, since how the rest is spread over the others is not
// known.
struct Divergence {
  Mean kl, same_top1;
  double median_kl = 0, p99_kl = 0, max_kl = 0;
  Mean log_probability;                        // log q - log p of the text's own ids
  std::optional<double> max_logit_difference;  // none: the other has log-probabilities
};

struct TextScore {
  int64_t windows = 0, counted = 0, bytes = 0;  // bytes of the ids that count
  Perplexity model;
  std::optional<Perplexity> against;
  std::optional<Divergence> divergence;
};

// Called between pieces with the ids done so far and the perplexity up to there; false stops, and
// ScoreText fails with kInterrupted.
using OnScoring = std::function<bool(int64_t done, int64_t total, double perplexity)>;

// `against` may be null. Both models must have the same vocabulary.
Result<TextScore> ScoreText(LogitsSource& model, LogitsSource* against, const TextIds& text,
                            std::span<const TextWindow> windows, ThreadPool& pool,
                            const OnScoring& progress = {});

// KL(softmax(p) || softmax(q)) of two rows of logits of the same length, in nats.
double KlDivergence(std::span<const float> p, std::span<const float> q);

}  // namespace lockstep

// LookupDecoder: prompt look-up speculation. Texts repeat themselves and their prompts (quotations,
// code, tables); where the last ids have been met before, what followed them then is proposed, and
// one call of the engine reads the next id and the whole proposal. As long as the caller then
// chooses what was proposed, its logits are there already.
//
//   Generate -> LookupDecoder -> DraftDecoder (the engine)
//
// The caller sees a Decoder like any other: every id is the caller's choice from the logits of its
// own position and the ids before it, so the text is that of plain decoding under any generation
// config, greedy or sampled. What is needed for it: logits do not depend on the call they come from
// (not so where DependsOnCallLength).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/matrix_view.h"
#include "engine/generate.h"

namespace lockstep {

// A decoder that gives the logits of every id it appends, and can forget the last ones.
class DraftDecoder : public RewindableDecoder {
 public:
  // [ids.size(), vocab_size], valid until the next call.
  virtual Result<MatrixView<const float>> AppendAll(std::span<const int32_t> ids) = 0;
  // Forgets the last `count` ids, at most kMostDrafted.
  virtual void Forget(int64_t count) = 0;
};

inline constexpr int64_t kMostDrafted = 15;

// Of the earlier places in a text that agree with its end for longest, the latest.
struct DraftMatch {
  size_t length = 0;  // ids that agree; 0 where fewer than kLeastMatch do
  size_t next = 0;    // what followed them begins here
};
inline constexpr size_t kLeastMatch = 2;
DraftMatch FindMatch(std::span<const int32_t> ids);

// `count` ids of what followed. A match near the end goes on into what it proposes, as a loop does.
void ProposeDraft(std::span<const int32_t> ids, const DraftMatch& match, size_t count,
                  std::vector<int32_t>& draft);

// How long a draft pays: from how often drafts were right lately, and from what calls of the
// decoder took. A draft of k ids, each right with chance p, gives (1 - p^(k+1)) / (1 - p) ids for
// one call of k + 1. A text without repetition soon pays for one drafted id in kMostPause steps.
class DraftPolicy {
 public:
  static constexpr int64_t kMostPause = 64;

  int64_t Length(const DraftMatch& match);  // 0: none
  void Learn(const DraftMatch& match, int64_t proposed, int64_t accepted);
  void LearnCost(int64_t ids, double seconds);  // of a call

 private:
  static constexpr std::array<int64_t, 5> kCalls = {1, 2, 4, 8, 16};  // ids
  static size_t Kind(const DraftMatch& match);
  double Cost(size_t call) const;

  std::array<double, kCalls.size()> cost_ = {};          // 0: never measured
  std::array<double, 4> chance_ = {0.4, 0.5, 0.7, 0.9};  // by length of match: 2, 3, 4 to 7, more
  std::array<int64_t, 4> paused_ = {};
};

struct LookupCounts {
  int64_t drafts = 0, proposed = 0, accepted = 0;
};

class LookupDecoder : public RewindableDecoder {
 public:
  using Clock = std::function<double()>;  // seconds

  // `decoder` must outlive this, and nobody else may append to it.
  explicit LookupDecoder(DraftDecoder& decoder, Clock clock = SteadySeconds)
      : decoder_(decoder), clock_(std::move(clock)) {}

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override;
  int64_t position() const override { return static_cast<int64_t>(ids_.size()); }
  int64_t capacity() const override { return decoder_.capacity(); }
  size_t KeepCommonPrefix(std::span<const int32_t> ids) override;

  const LookupCounts& counts() const { return counts_; }

 private:
  static double SteadySeconds();
  void Settle();

  DraftDecoder& decoder_;
  Clock clock_;
  std::vector<int32_t> ids_;    // that the caller appended
  std::vector<int32_t> draft_;  // behind them in the decoder; the first `taken_` are in ids_ too
  size_t taken_ = 0;
  MatrixView<const float> rows_;  // of the id before the draft, and of the draft
  DraftMatch match_;              // that it follows from
  DraftPolicy policy_;
  LookupCounts counts_;
};

}  // namespace lockstep

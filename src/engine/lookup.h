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

#include <cstdint>
#include <span>
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

inline constexpr int64_t kMostDrafted = 16;

// What followed the latest of those earlier places in `ids` that agree with the end of `ids` for
// longest: at most `most` ids, none where fewer than kLeastMatch agree. A match near the end goes
// on into what it proposes, as a loop does.
inline constexpr size_t kLeastMatch = 2;
void ProposeDraft(std::span<const int32_t> ids, size_t most, std::vector<int32_t>& draft);

// How long a draft may be, from how the last ones did. A text without repetition soon pays for one
// drafted id in kMostPause steps.
class DraftLength {
 public:
  static constexpr int64_t kMostPause = 64;

  int64_t Next();  // 0: none this time; asked once a step
  void Learn(int64_t proposed, int64_t accepted);

 private:
  int64_t length_ = 4, pause_ = 0, backoff_ = 1;
};

struct LookupCounts {
  int64_t drafts = 0, proposed = 0, accepted = 0;
};

class LookupDecoder : public RewindableDecoder {
 public:
  // `decoder` must outlive this, and nobody else may append to it.
  explicit LookupDecoder(DraftDecoder& decoder) : decoder_(decoder) {}

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override;
  int64_t position() const override { return static_cast<int64_t>(ids_.size()); }
  int64_t capacity() const override { return decoder_.capacity(); }
  size_t KeepCommonPrefix(std::span<const int32_t> ids) override;

  const LookupCounts& counts() const { return counts_; }

 private:
  void Settle();

  DraftDecoder& decoder_;
  std::vector<int32_t> ids_;    // that the caller appended
  std::vector<int32_t> draft_;  // behind them in the decoder; the first `taken_` are in ids_ too
  size_t taken_ = 0;
  MatrixView<const float> rows_;  // of the id before the draft, and of the draft
  DraftLength length_;
  LookupCounts counts_;
};

}  // namespace lockstep

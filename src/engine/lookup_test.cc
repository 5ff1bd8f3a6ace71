#include "engine/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

namespace lockstep {
namespace {

constexpr int32_t kVocab = 40;

// Logits from the last `memory` ids: with few of them the text falls into loops, with many it never
// does. Ids that were forgotten must be gone.
class ShortMemoryDecoder : public DraftDecoder {
 public:
  explicit ShortMemoryDecoder(size_t memory, int64_t capacity = 0)
      : memory_(memory), capacity_(capacity) {}

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    const auto rows = AppendAll(ids);
    if (!rows) return tl::unexpected(rows.error());
    return rows->row(rows->rows - 1);
  }
  Result<MatrixView<const float>> AppendAll(std::span<const int32_t> ids) override {
    if (fail_at && ids_.size() + ids.size() > *fail_at) return UsageError("full");
    ++calls;
    rows_run += ids.size();
    rows_.clear();
    for (const int32_t id : ids) {
      ids_.push_back(id);
      if (capacity_ > 0) {
        EXPECT_LE(static_cast<int64_t>(ids_.size()), capacity_);
      }
      uint32_t hash = 7;
      for (size_t i = ids_.size() - std::min(ids_.size(), memory_); i < ids_.size(); ++i)
        hash = hash * 31 + static_cast<uint32_t>(ids_[i]);
      std::mt19937 random(hash);
      for (int32_t v = 0; v < kVocab; ++v)
        rows_.push_back(static_cast<float>(random() % 1000) / 50);
    }
    return MatrixView<const float>(rows_.data(), ids.size(), kVocab);
  }
  void Forget(int64_t count) override {
    EXPECT_LE(count, kMostDrafted);
    ids_.resize(ids_.size() - static_cast<size_t>(count));
  }
  int64_t position() const override { return static_cast<int64_t>(ids_.size()); }
  int64_t capacity() const override { return capacity_; }
  size_t KeepCommonPrefix(std::span<const int32_t> ids) override {
    size_t kept = 0;
    while (kept + 1 < ids.size() && kept < ids_.size() && ids[kept] == ids_[kept]) ++kept;
    ids_.resize(kept);
    return kept;
  }

  // A call costs as much as ten ids.
  double Seconds() const { return static_cast<double>(10 * calls + rows_run); }
  LookupDecoder::Clock Clock() {
    return [this] { return Seconds(); };
  }

  size_t calls = 0, rows_run = 0;
  std::optional<size_t> fail_at;

 private:
  size_t memory_;
  int64_t capacity_;
  std::vector<int32_t> ids_;
  std::vector<float> rows_;
};

std::vector<int32_t> Draft(const std::vector<int32_t>& ids, size_t count) {
  std::vector<int32_t> draft;
  const DraftMatch match = FindMatch(ids);
  if (match.length > 0) ProposeDraft(ids, match, count, draft);
  return draft;
}

TEST(Lookup, ProposesWhatFollowedTheLongestAndThenTheLatestMatch) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(Draft({1, 2, 3, 4, 1, 2}, 2), (Ids{3, 4}));
  EXPECT_EQ(Draft({1, 2, 3, 1, 2, 4, 1, 2}, 1), (Ids{4}));
  EXPECT_EQ(Draft({7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2}, 2), (Ids{3, 8}));
  EXPECT_EQ(Draft({1, 2, 1, 2}, 5), (Ids{1, 2, 1, 2, 1}));
  EXPECT_EQ(Draft({5, 5, 5}, 4), (Ids{5, 5, 5, 5}));
  EXPECT_EQ(Draft({1, 2, 3, 2}, 4), (Ids{}));  // one id alone says little
  EXPECT_EQ(Draft({1, 2, 3, 4}, 4), (Ids{}));
  EXPECT_EQ(Draft({1, 2, 1, 2}, 0), (Ids{}));
  EXPECT_EQ(Draft({}, 4), (Ids{}));
  EXPECT_EQ(Draft({1}, 4), (Ids{}));
  EXPECT_EQ(FindMatch(Ids(100, 3)).length, 16u);
}

// What drafts of a match come to, when each id is right with the chance p, and calls cost that.
int64_t Settled(double p, const std::function<double(int64_t)>& cost, double once = 0) {
  DraftPolicy policy;
  std::mt19937 random(1);
  const DraftMatch match{.length = 5, .next = 1};
  std::map<int64_t, int> lengths;
  policy.LearnCost(1, cost(1));
  policy.LearnCost(16, once);
  for (int step = 0; step < 3000; ++step) {
    const int64_t length = policy.Length(match);
    if (step > 2000) ++lengths[length];
    policy.LearnCost(length + 1, cost(length + 1));
    int64_t right = 0;
    while (right < length && static_cast<double>(random() % 1000) < 1000 * p) ++right;
    if (length > 0) policy.Learn(match, length, right);
  }
  return std::ranges::max_element(lengths, {}, [](const auto& l) { return l.second; })->first;
}

TEST(Lookup, ADraftIsAsLongAsPays) {
  const auto cheap = [](int64_t ids) { return 1 + 0.05 * static_cast<double>(ids); };
  const auto linear = [](int64_t ids) { return static_cast<double>(ids); };
  const auto steep = [](int64_t ids) { return ids <= 4 ? 1.2 : 6.0; };
  EXPECT_EQ(Settled(1, cheap), 15);
  EXPECT_EQ(Settled(0.5, cheap), 3);
  EXPECT_EQ(Settled(0, cheap), 0);
  EXPECT_EQ(Settled(1, linear), 0);
  EXPECT_EQ(Settled(1, steep), 3);
  EXPECT_EQ(Settled(1, cheap, 10), 15);  // one call met a busy moment
}

TEST(Lookup, TheTextIsThatOfPlainDecodingUnderAnyConfig) {
  LookupCounts all;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const size_t memory = 1 + seed % 4;
    std::vector<int32_t> prompt(1 + random() % 50);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 8);
    GenerationConfig config;
    config.max_new_tokens = 200;
    config.eos_token_id = {39};
    if (seed % 3 == 1) config.repetition_penalty = 1.05;
    if (seed % 3 == 2) {
      config.do_sample = true;
      config.temperature = 0.3;
      config.seed = seed;
    }
    if (seed % 4 == 0) config.no_repeat_ngram_size = 6;
    if (seed % 5 == 0) config.frequency_penalty = 0.01;
    const int64_t capacity = seed % 2 == 0 ? 0 : 120;
    ShortMemoryDecoder plain(memory, capacity), drafted(memory, capacity);
    LookupDecoder lookup(drafted, drafted.Clock());
    const auto expected = Generate(plain, prompt, config);
    const auto got = Generate(lookup, prompt, config);
    ASSERT_TRUE(expected && got);
    EXPECT_EQ(got->ids, expected->ids);
    EXPECT_EQ(got->reason, expected->reason);
    EXPECT_EQ(lookup.position(), plain.position());
    EXPECT_LE(drafted.calls, plain.calls);
    // And on: a second text in the same sequence.
    std::vector<int32_t> turn = prompt;
    turn.insert(turn.end(), got->ids.begin(),
                got->ids.begin() + static_cast<std::ptrdiff_t>(got->ids.size() / 2));
    turn.push_back(3);
    const size_t kept = lookup.KeepCommonPrefix(turn);
    EXPECT_EQ(plain.KeepCommonPrefix(turn), kept);
    EXPECT_EQ(lookup.position(), static_cast<int64_t>(kept));
    const auto rest = std::span<const int32_t>(turn).subspan(kept);
    const auto held = std::span<const int32_t>(turn).first(kept);
    const auto more = Generate(plain, rest, config, {}, held);
    const auto more_drafted = Generate(lookup, rest, config, {}, held);
    ASSERT_EQ(more.has_value(), more_drafted.has_value());
    if (more) {
      EXPECT_EQ(more_drafted->ids, more->ids);
    }
    all.drafts += lookup.counts().drafts;
    all.proposed += lookup.counts().proposed;
    all.accepted += lookup.counts().accepted;
    EXPECT_LE(lookup.counts().accepted, lookup.counts().proposed);
  }
  EXPECT_GT(all.accepted, 500);
  EXPECT_GT(all.proposed, all.accepted);
}

TEST(Lookup, ARepetitiveTextTakesFewCallsAndOneWithoutRepetitionFewDrafts) {
  GenerationConfig config;
  config.max_new_tokens = 1000;
  ShortMemoryDecoder looping(1);
  LookupDecoder fast(looping, looping.Clock());
  ASSERT_TRUE(Generate(fast, std::vector<int32_t>{1, 2, 3}, config));
  EXPECT_LT(looping.calls, 150u);
  // The ids of this one are random: pairs are met again, and what follows them is not.
  ShortMemoryDecoder endless(1000);
  LookupDecoder slow(endless, endless.Clock());
  const auto result = Generate(slow, std::vector<int32_t>{1, 2, 3}, config);
  ASSERT_TRUE(result);
  EXPECT_GT(slow.counts().drafts, 3);
  EXPECT_LT(endless.Seconds(), 11 * 1000 * 1.03);
}

TEST(Lookup, AnErrorLeavesTheDecoderWhereItWas) {
  ShortMemoryDecoder decoder(1);
  decoder.fail_at = 12;
  LookupDecoder lookup(decoder, decoder.Clock());
  GenerationConfig config;
  config.max_new_tokens = 100;
  EXPECT_FALSE(Generate(lookup, std::vector<int32_t>{1, 2, 1, 2, 1, 2, 1, 2}, config));
  EXPECT_EQ(lookup.position(), 12);  // what fits was decoded, drafts that do not were not missed
  decoder.fail_at.reset();
  const std::vector<int32_t> next = {1, 2, 1, 2, 5};
  EXPECT_EQ(lookup.KeepCommonPrefix(next), 4u);
  ShortMemoryDecoder plain(1);
  const auto expected = Generate(plain, next, config);
  const auto got =
      Generate(lookup, std::span(next).subspan(4), config, {}, std::span(next).first(4));
  EXPECT_EQ(got->ids, expected->ids);
}

}  // namespace
}  // namespace lockstep

// HashStepper: a stepper whose logits are a hash of what the cache's pages hold, for tests: a page
// that was shared wrongly, lost or written by a neighbour changes them. HashDecoder is the same
// model without a cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/scheduler.h"

namespace lockstep {

inline constexpr int32_t kVocab = 50;
inline constexpr size_t kPage = kPageTokens * sizeof(int64_t);
inline constexpr int32_t kPoison = 13;  // a step that reads it fails, in tests that want that

inline uint64_t Mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdu;
}

// The logits at position p: a hash of all ids up to it and of those in the window.
inline void FillLogits(uint64_t all, uint64_t window, std::span<float> logits) {
  for (size_t v = 0; v < logits.size(); ++v)
    logits[v] = static_cast<float>(Mix(Mix(all, window), v) >> 40) * 0x1p-22f;
}

class HashStepper : public Stepper {
 public:
  explicit HashStepper(std::optional<int64_t> window = {}, size_t limit = 0)
      : window_(window), cache_({{kPage, {}}, {kPage, window}}, limit) {}

  Status Run(std::span<EngineStep> steps) override {
    rows_.clear();
    size_t count = 0;
    for (const EngineStep& step : steps) {
      count += step.ids.size();
      for (const int32_t id : step.ids)
        if (poison && id == kPoison) return UsageError("the poison was read");
    }
    rows_.resize(count * kVocab);
    calls.emplace_back();
    size_t row = 0;
    for (EngineStep& step : steps) {
      LS_RETURN_IF_ERROR(cache_.Extend(*step.sequence, static_cast<int64_t>(step.ids.size())));
      const size_t first = row;
      for (size_t i = 0; i < step.ids.size(); ++i) {
        const int64_t p = step.sequence->length() + static_cast<int64_t>(i);
        for (const size_t layer : {0, 1}) At(*step.sequence, layer, p) = step.ids[i] + 1;
        const bool last = i + 1 == step.ids.size();
        if (step.wanted == EngineStep::Logits::kNone ||
            (step.wanted == EngineStep::Logits::kLast && !last))
          continue;
        uint64_t all = 1, windowed = 2;
        for (int64_t q = 0; q <= p; ++q)
          all = Mix(all, static_cast<uint64_t>(At(*step.sequence, 0, q)));
        for (int64_t q = window_ ? std::max<int64_t>(0, p - *window_ + 1) : 0; q <= p; ++q)
          windowed = Mix(windowed, static_cast<uint64_t>(At(*step.sequence, 1, q)));
        FillLogits(all, windowed, std::span(rows_).subspan(row++ * kVocab, kVocab));
      }
      cache_.Commit(*step.sequence, static_cast<int64_t>(step.ids.size()));
      step.logits = {rows_.data() + first * kVocab, row - first, kVocab};
      calls.back().push_back(static_cast<int64_t>(step.ids.size()));
    }
    return {};
  }
  KvCache& cache() override { return cache_; }

  std::vector<std::vector<int64_t>> calls;  // ids of each sequence in each step
  bool poison = false;

 private:
  static int64_t& At(const KvSequence& sequence, size_t layer, int64_t p) {
    std::byte* page = sequence.Page(layer, p / kPageTokens);
    LS_CHECK(page != nullptr, "position {} of layer {}", p, layer);
    return reinterpret_cast<int64_t*>(page)[p % kPageTokens];
  }
  std::optional<int64_t> window_;
  KvCache cache_;
  std::vector<float> rows_;
};

class HashDecoder : public Decoder {
 public:
  explicit HashDecoder(std::optional<int64_t> window, int64_t capacity = 0)
      : window_(window), capacity_(capacity), logits_(kVocab) {}
  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    uint64_t all = 1, windowed = 2;
    for (const int32_t id : ids_) all = Mix(all, static_cast<uint64_t>(id) + 1);
    const size_t n = ids_.size();
    for (size_t q = window_ && static_cast<size_t>(*window_) < n ? n - static_cast<size_t>(*window_)
                                                                 : 0;
         q < n; ++q)
      windowed = Mix(windowed, static_cast<uint64_t>(ids_[q]) + 1);
    FillLogits(all, windowed, logits_);
    return std::span<const float>(logits_);
  }
  int64_t position() const override { return static_cast<int64_t>(ids_.size()); }
  int64_t capacity() const override { return capacity_; }

 private:
  std::optional<int64_t> window_;
  int64_t capacity_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
};

}  // namespace lockstep

// What a run can get wrong (the second half of RunSpec), as the reference computes it.
#include <gtest/gtest.h>

#include <cmath>

#include "model/random_weights.h"
#include "reference/interpreter.h"
#include "reference/mask.h"
#include "spec/random_spec.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

std::vector<float> All(const ModelSpec& spec, const Weights& weights, const RunSpec& run,
                       const std::vector<size_t>& calls) {
  ThreadPool pool(1);
  Interpreter<float> interpreter(spec, weights, pool, run);
  auto sequence = interpreter.NewSequence();
  std::vector<float> all;
  int32_t next = 3;
  for (const size_t count : calls) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < count; ++i)
      ids.push_back(next = static_cast<int32_t>((next * 7 + 1) % spec.embedding.vocab_size));
    const auto logits = interpreter.Append(sequence, ids, LogitsFor::kAll);
    EXPECT_TRUE(logits) << logits.error().message;
    if (logits) all.insert(all.end(), logits->data, logits->data + logits->rows * logits->cols);
  }
  return all;
}

TEST(Run, ChunksOfTheRunAreCallsOfTheCaller) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    const auto owned = RandomWeights(spec, 5);
    for (const CacheState state :
         {CacheState::kKept, CacheState::kConvLost, CacheState::kKvLost, CacheState::kRowStale}) {
      RunSpec chunked{.chunk_size = 5, .cache_state = state};
      RunSpec plain{.cache_state = state};
      EXPECT_EQ(All(spec, owned->weights, chunked, {12}),
                All(spec, owned->weights, plain, {5, 5, 2}))
          << seed;
    }
  }
}

TEST(Run, WhatConcernsLaterCallsLeavesOneCallAlone) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    const auto owned = RandomWeights(spec, 5);
    const auto right = All(spec, owned->weights, {}, {9});
    for (const RunSpec& run :
         {RunSpec{.causal_alignment = CausalAlignment::kStart},
          RunSpec{.ring_cache = RingCache::kStuck}, RunSpec{.cache_state = CacheState::kKvLost},
          RunSpec{.cache_state = CacheState::kConvLost}}) {
      const auto found = All(spec, owned->weights, run, {9});
      ASSERT_EQ(found.size(), right.size());
      // Masked keys join the sums as zeros: equal but for the order of a sum.
      for (size_t i = 0; i < right.size(); ++i)
        ASSERT_NEAR(found[i], right[i], 1e-4 * std::max(1.0f, std::abs(right[i]))) << seed;
    }
  }
}

TEST(Run, PositionsPastTheLearnedOnesAreRefused) {
  ModelSpec spec = RandomSpec(1);
  spec.embedding.positions = LearnedPositions{.num_positions = 8};
  const auto owned = RandomWeights(spec, 5);
  ThreadPool pool(1);
  Interpreter<float> interpreter(spec, owned->weights, pool, {.first_position = 1});
  auto sequence = interpreter.NewSequence();
  const std::vector<int32_t> ids(8, 0);
  EXPECT_FALSE(interpreter.Append(sequence, ids));
  EXPECT_TRUE(interpreter.Append(sequence, std::span(ids).first(7)));
}

TEST(Mask, SeesWhatTheRunSays) {
  const auto seen = [](const RunSpec& run, std::optional<int64_t> window, QueryPlace query) {
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 12; ++key)
      if (Sees(run, window, query, key)) keys.push_back(key);
    return keys;
  };
  using Keys = std::vector<int64_t>;
  const QueryPlace later{.call_first = 8, .position = 9};
  EXPECT_EQ(seen({}, 3, later), (Keys{7, 8, 9}));
  EXPECT_EQ(seen({.causal_alignment = CausalAlignment::kStart}, {}, later), (Keys{0, 1}));
  EXPECT_EQ(seen({.ring_cache = RingCache::kOneShort}, 3, later), (Keys{8, 9}));
  EXPECT_EQ(seen({.ring_cache = RingCache::kStuck}, 3, later), (Keys{0, 1, 9}));
  EXPECT_EQ(seen({.cache_state = CacheState::kKvLost}, {}, later), (Keys{8, 9}));
  EXPECT_EQ(seen({.ring_cache = RingCache::kStuck}, 3, {0, 5}), (Keys{3, 4, 5}));
}

}  // namespace
}  // namespace lockstep

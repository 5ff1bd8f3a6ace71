// Sampler: the logits of a step and the ids so far give the next id.
//
// Random numbers are derived, not drawn from a state: the number for new token n (from 0) under
// seed s is
//   u = SplitMix64(SplitMix64(s) + n) >> 11, times 2^-53,
// so the same seed gives the same text on any machine, in any batch, and after a restart. u chooses
// by the inverse cumulative distribution: walking ids upwards, the first whose running sum of p
// exceeds u. Guaranteed: given the same float32 logits, the same id everywhere (portable_math.h
// says why).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/generation_config.h"

namespace lockstep {

double UniformDraw(uint64_t seed, uint64_t index);  // in [0, 1)

// The id of the highest score, the lowest id among equals. Fails on NaN, +infinity, and when
// nothing is left: transformers would return some id, and the text would be worthless from there
// on.
Result<int32_t> Argmax(std::span<const float> scores);

// The first id with cumsum(p) > u. Fails as Argmax does.
Result<int32_t> InverseCdf(std::span<const float> scores, double u);

class Sampler {
 public:
  // Without a seed in `config` the seed is 0 when `fallback_seed` is: callers who want a fresh text
  // each time pass a random one, and print it.
  Sampler(GenerationConfig config, size_t prompt_len, uint64_t fallback_seed = 0);

  // `ids` is everything so far, prompt included; `logits` is [vocab_size].
  Result<int32_t> Next(std::span<const float> logits, std::span<const int32_t> ids);

  bool IsEnd(int32_t id) const;
  const GenerationConfig& config() const { return config_; }
  uint64_t seed() const { return seed_; }

 private:
  GenerationConfig config_;
  size_t prompt_len_;
  uint64_t seed_;
  bool plain_;  // the highest logit, whatever came before
  std::vector<float> scores_;
};

}  // namespace lockstep

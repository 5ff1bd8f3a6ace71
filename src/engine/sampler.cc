#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/logits_processors.h"

namespace lockstep {
namespace {

// Sebastiano Vigna's SplitMix64 (public domain), as a hash of its counter.
uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Status CheckScores(std::span<const float> scores) {
  bool finite = false;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (std::isnan(scores[id]) || scores[id] > std::numeric_limits<float>::max())
      return InputError(
          "no token can be chosen: the score of token {} is {} (broken weights, or an "
          "overflow in half precision?)",
          id, scores[id]);
    finite |= std::isfinite(scores[id]);
  }
  if (!finite)
    return InputError(
        "no token can be chosen: none of {} has a finite score (do the biases or "
        "suppressed tokens forbid all?)",
        scores.size());
  return {};
}

}  // namespace

double UniformDraw(uint64_t seed, uint64_t index) {
  return static_cast<double>(SplitMix64(SplitMix64(seed) + index) >> 11) * 0x1p-53;
}

Result<int32_t> Argmax(std::span<const float> scores) {
  LS_RETURN_IF_ERROR(CheckScores(scores));
  return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

Result<int32_t> InverseCdf(std::span<const float> scores, double u) {
  LS_RETURN_IF_ERROR(CheckScores(scores));
  const std::vector<double> p = Softmax(scores);
  double sum = 0;
  int32_t last = 0;  // rounding may leave the sum just below u: the last id with any chance
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] <= 0) continue;
    sum += p[id];
    last = static_cast<int32_t>(id);
    if (sum > u) break;
  }
  return last;
}

Result<int32_t> Sampler::Next(std::span<const float> logits, std::span<const int32_t> ids) {
  scores_.assign(logits.begin(), logits.end());
  ProcessLogits(config_, ids, prompt_len_, scores_);
  if (!config_.do_sample) return Argmax(scores_);
  const uint64_t index = ids.size() - std::min(prompt_len_, ids.size());
  return InverseCdf(scores_, UniformDraw(seed_, index));
}

bool Sampler::IsEnd(int32_t id) const {
  return std::find(config_.eos_token_id.begin(), config_.eos_token_id.end(), id) !=
         config_.eos_token_id.end();
}

}  // namespace lockstep

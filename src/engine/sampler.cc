#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/logits_processors.h"
#include "engine/score_scan.h"

namespace lockstep {
namespace {

// Sebastiano Vigna's SplitMix64 (public domain), as a hash of its counter.
uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Greedy without any rule: whatever a rule is, it is none of what Greedy() keeps, nor of what acts
// on sampling alone.
bool ChangesNoScore(GenerationConfig config) {
  config.temperature = config.top_p = config.min_p = config.typical_p = std::nullopt;
  config.epsilon_cutoff = config.eta_cutoff = std::nullopt;
  config.top_k.reset();
  config.seed.reset();
  return config.ToJson() == config.Greedy().ToJson();
}

Status CheckScores(std::span<const float> scores) {
  if (ScanScores(scores).Any()) return {};
  for (size_t id = 0; id < scores.size(); ++id)
    if (std::isnan(scores[id]) || scores[id] > std::numeric_limits<float>::max())
      return InputError(
          "no token can be chosen: the score of token {} is {} (broken weights, or an "
          "overflow in half precision?)",
          id, scores[id]);
  return InputError(
      "no token can be chosen: none of {} has a finite score (do the biases or "
      "suppressed tokens forbid all?)",
      scores.size());
}

}  // namespace

double UniformDraw(uint64_t seed, uint64_t index) {
  return static_cast<double>(SplitMix64(SplitMix64(seed) + index) >> 11) * 0x1p-53;
}

Result<int32_t> Argmax(std::span<const float> scores) {
  // The first block that has the highest, and there the first place.
  constexpr size_t kBlock = 1024;
  ScoreScan best;
  size_t begin_of_best = 0;
  for (size_t begin = 0; begin < scores.size(); begin += kBlock) {
    const ScoreScan block =
        ScanScores(scores.subspan(begin, std::min(kBlock, scores.size() - begin)));
    best.fit = best.fit && block.fit;
    if (block.highest <= best.highest) continue;
    best.highest = block.highest;
    begin_of_best = begin;
  }
  if (!best.Any()) LS_RETURN_IF_ERROR(CheckScores(scores));
  const auto first = scores.begin() + static_cast<std::ptrdiff_t>(begin_of_best);
  return static_cast<int32_t>(std::find(first, scores.end(), best.highest) - scores.begin());
}

Result<int32_t> InverseCdf(std::span<const float> scores, double u) {
  LS_RETURN_IF_ERROR(CheckScores(scores));
  // What is masked has no part in any sum.
  std::vector<float> live;
  std::vector<int32_t> ids;
  live.reserve(scores.size());
  ids.reserve(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    if (scores[id] == -std::numeric_limits<float>::infinity()) continue;
    live.push_back(scores[id]);
    ids.push_back(static_cast<int32_t>(id));
  }
  const std::vector<double> p = Softmax(live);
  double sum = 0;
  int32_t last = 0;  // rounding may leave the sum just below u: the last id with any chance
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] <= 0) continue;
    sum += p[i];
    last = ids[i];
    if (sum > u) break;
  }
  return last;
}

Sampler::Sampler(GenerationConfig config, size_t prompt_len, uint64_t fallback_seed)
    : config_(std::move(config)),
      prompt_len_(prompt_len),
      seed_(config_.seed.value_or(fallback_seed)),
      plain_(!config_.do_sample && ChangesNoScore(config_)) {}

Result<int32_t> Sampler::Next(std::span<const float> logits, std::span<const int32_t> ids) {
  if (plain_) return Argmax(logits);
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

#include "engine/logits_processors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "engine/portable_math.h"
#include "engine/score_scan.h"

namespace lockstep {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

bool InVocabulary(int32_t id, std::span<const float> scores) {
  return id >= 0 && static_cast<size_t>(id) < scores.size();
}
void Mask(std::span<const int32_t> ids, std::span<float> scores) {
  for (const int32_t id : ids)
    if (InVocabulary(id, scores)) scores[static_cast<size_t>(id)] = kMasked;
}

// Does a bias for `sequence` act now? transformers skips one as long as the text plus its last
// token, even where all its other ids match.
bool Matches(std::span<const int32_t> sequence, std::span<const int32_t> ids) {
  if (sequence.size() == 1) return true;
  if (sequence.size() > ids.size()) return false;
  const auto prefix = sequence.first(sequence.size() - 1);
  return std::equal(prefix.begin(), prefix.end(),
                    ids.end() - static_cast<std::ptrdiff_t>(prefix.size()));
}

// All biases are summed first and added once; the same sequence given twice: the last one wins.
using Biases = std::map<std::vector<int32_t>, double>;
void AddBiases(const Biases& biases, std::span<const int32_t> ids, std::span<float> scores) {
  std::map<int32_t, float> sums;
  for (const auto& [sequence, bias] : biases)
    if (Matches(sequence, ids)) sums[sequence.back()] += static_cast<float>(bias);
  for (const auto& [id, sum] : sums)
    if (InVocabulary(id, scores)) scores[static_cast<size_t>(id)] += sum;
}

void RepetitionPenalty(double penalty, std::span<const int32_t> ids, std::span<float> scores) {
  const float p = static_cast<float>(penalty);
  for (const int32_t id : std::unordered_set<int32_t>(ids.begin(), ids.end())) {
    if (!InVocabulary(id, scores)) continue;
    float& x = scores[static_cast<size_t>(id)];
    x = x < 0 ? x * p : x / p;
  }
}

// Bans every id that followed an earlier copy of the last n-1 ids.
void NoRepeatNgram(size_t n, std::span<const int32_t> ids, std::span<float> scores) {
  if (ids.size() < n) return;
  const auto last = ids.last(n - 1);
  for (size_t i = 0; i + n <= ids.size(); ++i)
    if (std::equal(last.begin(), last.end(), ids.begin() + static_cast<std::ptrdiff_t>(i)))
      Mask(ids.subspan(i + n - 1, 1), scores);
}

void ForceOnly(std::span<const int32_t> ids, std::span<float> scores) {
  std::fill(scores.begin(), scores.end(), kMasked);
  for (const int32_t id : ids)
    if (InVocabulary(id, scores)) scores[static_cast<size_t>(id)] = 0;
}

void RemoveInvalid(std::span<float> scores) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (float& x : scores) {
    if (std::isnan(x)) {
      x = 0;
    } else if (std::isinf(x)) {
      x = x > 0 ? kMost : -kMost;
    }
  }
}

// eos += |eos| * (factor^steps - 1), steps since `start` new tokens.
void ExponentialDecay(double factor, size_t steps, std::span<const int32_t> eos,
                      std::span<float> scores) {
  double power = 1;
  double base = factor;
  for (size_t e = steps; e > 0; e >>= 1, base *= base)
    if (e & 1) power *= base;
  for (const int32_t id : eos) {
    if (!InVocabulary(id, scores)) continue;
    float& x = scores[static_cast<size_t>(id)];
    x += std::fabs(x) * static_cast<float>(power - 1);
  }
}

// OpenAI: x -= presence * [count > 0] + frequency * count, over generated ids only.
void CountPenalties(const GenerationConfig& config, std::span<const int32_t> generated,
                    std::span<float> scores) {
  const double presence = config.presence_penalty.value_or(0);
  const double frequency = config.frequency_penalty.value_or(0);
  if (presence == 0 && frequency == 0) return;
  std::unordered_map<int32_t, int64_t> counts;
  for (const int32_t id : generated) ++counts[id];
  for (const auto& [id, count] : counts)
    if (InVocabulary(id, scores))
      scores[static_cast<size_t>(id)] -=
          static_cast<float>(presence + frequency * static_cast<double>(count));
}

// The k-th largest score. With few of them, the k largest so far are kept in a heap: most scores
// are only compared with its least.
float KthLargest(std::span<const float> scores, size_t k) {
  k = std::clamp<size_t>(k, 1, scores.size());
  constexpr size_t kFew = 256;
  std::vector<float> top(
      scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(k <= kFew ? k : scores.size()));
  if (k > kFew) {
    const auto place = top.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(top.begin(), place, top.end(), std::greater<>());
    return *place;
  }
  std::make_heap(top.begin(), top.end(), std::greater<>());
  for (const float x : scores.subspan(k)) {
    if (x <= top.front()) continue;
    std::pop_heap(top.begin(), top.end(), std::greater<>());
    top.back() = x;
    std::push_heap(top.begin(), top.end(), std::greater<>());
  }
  return top.front();
}

// Ascending by score. Among equal scores the lower id counts as the larger: it is dropped last.
std::vector<uint32_t> AscendingOrder(std::span<const float> scores) {
  const size_t n = scores.size();
  std::vector<uint32_t> order(n), next(n), keys(n);
  for (size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(scores[i] + 0.0f);  // -0 is 0
    keys[i] = bits >> 31 ? ~bits : bits | 0x80000000u;            // floats' order as integers'
    order[n - 1 - i] = static_cast<uint32_t>(i);
  }
  // A whole vocabulary is sorted digit by digit; the sort is stable.
  constexpr uint32_t kBits = 11, kDigits = 1u << kBits;
  if (n < kDigits) {
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    return order;
  }
  for (uint32_t shift = 0; shift < 32; shift += kBits) {
    std::array<uint32_t, kDigits> begin = {};
    for (const uint32_t key : keys) ++begin[(key >> shift) % kDigits];
    uint32_t sum = 0;
    for (uint32_t& count : begin) sum += std::exchange(count, sum);
    for (const uint32_t id : order) next[begin[(keys[id] >> shift) % kDigits]++] = id;
    order.swap(next);
  }
  return order;
}

// H = -sum p log p, natural logarithm; log p = score - max - log(sum).
struct Distribution {
  std::vector<double> p, log_p;
  double entropy = 0;
};
Distribution Normalize(std::span<const float> scores) {
  Distribution d;
  d.p = Softmax(scores);
  const double max = ScanScores(scores).highest;
  double sum = 0;
  for (const float x : scores) sum += PortableExp(x - max);
  const double log_sum = PortableLog(sum);
  d.log_p.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    d.log_p.push_back(scores[i] - max - log_sum);
    if (d.p[i] > 0) d.entropy -= d.p[i] * d.log_p[i];
  }
  return d;
}

void Warp(const GenerationConfig& c, std::span<float> scores, size_t min_keep) {
  if (c.temperature && *c.temperature != 1) {
    const float t = static_cast<float>(*c.temperature);
    for (float& x : scores) x /= t;
  }
  // Filters on a distribution mean nothing beside NaN or +infinity, which the caller refuses
  // anyway.
  if (!ScanScores(scores).Any()) return;
  // What is masked takes no part in any filter: each works on what the ones before it left.
  std::vector<float> live;
  std::vector<uint32_t> ids;
  const auto keep = [&](std::span<const float> from, auto id_of) {
    size_t n = 0;
    live.resize(from.size());
    ids.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == kMasked) continue;
      live[n] = from[i];
      ids[n++] = id_of(i);
    }
    live.resize(n);
    ids.resize(n);
  };
  keep(scores, [](size_t i) { return static_cast<uint32_t>(i); });
  const auto apply = [&](bool wanted, const auto& filter) {
    if (!wanted) return;
    filter();
    keep(live, [&](size_t i) { return ids[i]; });
  };
  apply(c.top_k && *c.top_k > 0, [&] { ApplyTopK(live, *c.top_k, min_keep); });
  apply(c.top_p && *c.top_p < 1, [&] { ApplyTopP(live, *c.top_p, min_keep); });
  apply(c.min_p && *c.min_p > 0, [&] { ApplyMinP(live, *c.min_p, min_keep); });
  apply(c.typical_p && *c.typical_p < 1, [&] { ApplyTypicalP(live, *c.typical_p, min_keep); });
  apply(c.epsilon_cutoff && *c.epsilon_cutoff > 0 && *c.epsilon_cutoff < 1,
        [&] { ApplyEpsilonCutoff(live, *c.epsilon_cutoff, min_keep); });
  apply(c.eta_cutoff && *c.eta_cutoff > 0 && *c.eta_cutoff < 1,
        [&] { ApplyEtaCutoff(live, *c.eta_cutoff, min_keep); });
  std::fill(scores.begin(), scores.end(), kMasked);
  for (size_t i = 0; i < live.size(); ++i) scores[ids[i]] = live[i];
}

}  // namespace

std::vector<double> Softmax(std::span<const float> scores) {
  const double max = ScanScores(scores).highest;
  std::vector<double> p(scores.size());
  if (std::isinf(max)) return p;  // nothing is left, or too much: the caller refuses it
  PortableExps(scores, max, p.data());
  double sum = 0;
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
  return p;
}

// Drops what is below the k-th largest; ties at the k-th all stay.
void ApplyTopK(std::span<float> scores, int64_t k, size_t min_keep) {
  const size_t keep = std::min(std::max(static_cast<size_t>(k), min_keep), scores.size());
  const float edge = KthLargest(scores, keep);
  for (float& x : scores)
    if (x < edge) x = kMasked;
}

// Drops from the smallest up while the sum of the dropped stays <= 1 - p.
void ApplyTopP(std::span<float> scores, double p, size_t min_keep) {
  const std::vector<double> probability = Softmax(scores);
  const std::vector<uint32_t> order = AscendingOrder(scores);
  double sum = 0;
  for (size_t i = 0; i + min_keep < order.size(); ++i) {
    sum += probability[order[i]];
    if (sum > 1 - p) break;
    scores[order[i]] = kMasked;
  }
}

void ApplyMinP(std::span<float> scores, double min_p, size_t min_keep) {
  const std::vector<double> probability = Softmax(scores);
  const double edge = min_p * *std::max_element(probability.begin(), probability.end());
  const std::vector<uint32_t> order = AscendingOrder(scores);
  for (size_t i = 0; i + min_keep < order.size(); ++i)
    if (probability[order[i]] < edge) scores[order[i]] = kMasked;
}

// Keeps the tokens whose surprise is nearest to the entropy, until they hold `mass`.
void ApplyTypicalP(std::span<float> scores, double mass, size_t min_keep) {
  const Distribution d = Normalize(scores);
  std::vector<double> shift(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) shift[i] = std::fabs(-d.log_p[i] - d.entropy);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return shift[a] < shift[b]; });
  double sum = 0;
  size_t below = 0;
  for (const size_t id : order) {
    sum += d.p[id];
    if (sum < mass) ++below;
  }
  const double edge = shift[order[std::min(below, order.size() - 1)]];
  for (size_t i = min_keep; i < order.size(); ++i)
    if (shift[order[i]] > edge) scores[order[i]] = kMasked;
}

void ApplyEpsilonCutoff(std::span<float> scores, double epsilon, size_t min_keep) {
  const std::vector<double> probability = Softmax(scores);
  const float edge = KthLargest(scores, min_keep);
  for (size_t i = 0; i < scores.size(); ++i)
    if (probability[i] < epsilon && scores[i] < edge) scores[i] = kMasked;
}

void ApplyEtaCutoff(std::span<float> scores, double epsilon, size_t min_keep) {
  const Distribution d = Normalize(scores);
  const double eta = std::min(epsilon, std::sqrt(epsilon) * PortableExp(-d.entropy));
  const float edge = KthLargest(scores, min_keep);
  for (size_t i = 0; i < scores.size(); ++i)
    if (d.p[i] < eta && scores[i] < edge) scores[i] = kMasked;
}

void ProcessLogits(const GenerationConfig& c, std::span<const int32_t> ids, size_t prompt_len,
                   std::span<float> scores, size_t min_keep) {
  if (scores.empty()) return;
  prompt_len = std::min(prompt_len, ids.size());
  const size_t length = ids.size();
  const size_t generated = length - prompt_len;

  Biases biases;
  for (const auto& [id, bias] : c.logit_bias) biases[{id}] = bias;
  for (const auto& [sequence, bias] : c.sequence_bias) biases[sequence] = bias;
  AddBiases(biases, ids, scores);
  if (c.repetition_penalty && *c.repetition_penalty != 1)
    RepetitionPenalty(*c.repetition_penalty, ids, scores);
  if (c.no_repeat_ngram_size && *c.no_repeat_ngram_size > 0)
    NoRepeatNgram(static_cast<size_t>(*c.no_repeat_ngram_size), ids, scores);
  Biases banned;
  for (const auto& word : c.bad_words_ids) {
    const bool is_eos = word.size() == 1 && std::find(c.eos_token_id.begin(), c.eos_token_id.end(),
                                                      word[0]) != c.eos_token_id.end();
    if (!is_eos) banned[word] = kMasked;
  }
  AddBiases(banned, ids, scores);
  if (static_cast<int64_t>(length) < c.min_length.value_or(0)) Mask(c.eos_token_id, scores);
  if (static_cast<int64_t>(generated) < c.min_new_tokens.value_or(0)) Mask(c.eos_token_id, scores);
  std::optional<int64_t> max_length = c.max_length;
  if (c.max_new_tokens) max_length = static_cast<int64_t>(prompt_len) + *c.max_new_tokens;
  if (!c.forced_eos_token_id.empty() && max_length &&
      static_cast<int64_t>(length) == *max_length - 1)
    ForceOnly(c.forced_eos_token_id, scores);
  if (c.remove_invalid_values) RemoveInvalid(scores);
  if (const auto& decay = c.exponential_decay_length_penalty) {
    const int64_t steps = static_cast<int64_t>(generated) - decay->first;
    if (steps > 0)
      ExponentialDecay(decay->second, static_cast<size_t>(steps), c.eos_token_id, scores);
  }
  Mask(c.suppress_tokens, scores);
  if (generated == 0) Mask(c.begin_suppress_tokens, scores);
  CountPenalties(c, ids.subspan(prompt_len), scores);
  if (c.do_sample) Warp(c, scores, min_keep);
  if (c.renormalize_logits) {
    const double max = ScanScores(scores).highest;
    double sum = 0;
    for (const float x : scores) sum += PortableExp(x - max);
    const double log_sum = max + PortableLog(sum);
    for (float& x : scores) x = static_cast<float>(x - log_sum);
  }
}

}  // namespace lockstep

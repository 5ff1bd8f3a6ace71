#include "engine/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/rounding.h"

namespace lockstep {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void SoftmaxOf(std::span<float> x) {
  const float max = *std::ranges::max_element(x);
  float sum = 0;
  for (float& e : x) sum += e = std::exp(e - max);
  for (float& e : x) e /= sum;
}

// Index of the largest, the first among equals, which is then out of the running.
size_t TakeBest(std::span<float> scores) {
  const auto best = static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
  scores[best] = kNever;
  return best;
}

void DropWeakGroups(const RouterGroups& groups, std::span<float> scores, RoutingScratch& s) {
  const auto n = static_cast<size_t>(groups.n_group);
  const size_t size = scores.size() / n;
  s.worth.assign(n, 0.0f);
  for (size_t g = 0; g < n; ++g) {
    const auto group = scores.subspan(g * size, size);
    s.group.assign(group.begin(), group.end());
    std::ranges::sort(s.group, std::greater());
    for (size_t i = 0; i < std::min(size, static_cast<size_t>(groups.best_per_group)); ++i)
      s.worth[g] += s.group[i];
  }
  s.kept.assign(n, 0);
  for (int64_t i = 0; i < groups.topk_group; ++i) s.kept[TakeBest(s.worth)] = 1;
  for (size_t e = 0; e < scores.size(); ++e)
    if (s.kept[e / size] == 0) scores[e] = kNever;
}

// PhiMoE: see docs/model_spec.md, sparse_mixer_jitter.
void RouteSparsely(double jitter, std::span<float> logits, RoutingScratch& s) {
  s.weights.assign(logits.begin(), logits.end());  // all
  s.choice = s.weights;                            // left
  std::ranges::fill(logits, 0.0f);
  for (int pick = 0; pick < 2; ++pick) {
    const float max = *std::ranges::max_element(s.choice);
    s.near = s.choice;
    for (size_t e = 0; e < s.near.size(); ++e)
      if ((max - s.weights[e]) / std::max(std::abs(s.weights[e]), max) >
          static_cast<float>(2 * jitter))
        s.near[e] = kNever;
    const size_t best = TakeBest(s.choice);
    SoftmaxOf(s.near);
    logits[best] = s.near[best];
  }
}

}  // namespace

void RouteToken(const RouterSpec& router, int64_t num_experts_per_tok,
                std::span<const float> selection_bias, std::span<float> logits, RoutingScratch& s) {
  if (std::ranges::any_of(logits, [](float x) { return std::isnan(x); })) {
    std::ranges::fill(logits, 0.0f);
    std::ranges::fill(logits.first(static_cast<size_t>(num_experts_per_tok)), std::nanf(""));
    return;
  }
  if (router.scoring == RouterScoring::kSparseMixer)
    return RouteSparsely(*router.sparse_mixer_jitter, logits, s);
  if (router.scoring == RouterScoring::kSoftmaxThenTopK) SoftmaxOf(logits);
  if (router.scoring == RouterScoring::kSigmoidThenTopK)
    for (float& e : logits) e = 1 / (1 + std::exp(-e));
  s.choice.assign(logits.begin(), logits.end());
  for (size_t e = 0; e < selection_bias.size(); ++e) s.choice[e] += selection_bias[e];
  if (router.groups) DropWeakGroups(*router.groups, s.choice, s);
  s.chosen.clear();
  s.weights.clear();
  for (int64_t k = 0; k < num_experts_per_tok; ++k) {
    s.chosen.push_back(TakeBest(s.choice));
    s.weights.push_back(logits[s.chosen.back()]);
  }
  if (router.scoring == RouterScoring::kTopKThenSoftmax) SoftmaxOf(s.weights);
  if (router.normalize_top_k) {
    float sum = 0;
    for (const float w : s.weights) sum += w;
    for (float& w : s.weights) w /= sum + static_cast<float>(router.normalize_epsilon);
  }
  ScaleRow(router.routed_scaling, static_cast<int64_t>(s.weights.size()), s.weights.data());
  std::ranges::fill(logits, 0.0f);
  for (size_t k = 0; k < s.chosen.size(); ++k) logits[s.chosen[k]] = s.weights[k];
}

}  // namespace lockstep

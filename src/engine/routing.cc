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

void DropWeakGroups(const RouterGroups& groups, std::span<float> scores) {
  const auto n = static_cast<size_t>(groups.n_group);
  const size_t size = scores.size() / n;
  std::vector<float> worth(n, 0.0f);
  for (size_t g = 0; g < n; ++g) {
    std::vector<float> group(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                             scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(group, std::greater());
    for (size_t i = 0; i < std::min(size, static_cast<size_t>(groups.best_per_group)); ++i)
      worth[g] += group[i];
  }
  std::vector<bool> kept(n, false);
  for (int64_t i = 0; i < groups.topk_group; ++i) kept[TakeBest(worth)] = true;
  for (size_t e = 0; e < scores.size(); ++e)
    if (!kept[e / size]) scores[e] = kNever;
}

// PhiMoE: see docs/model_spec.md, sparse_mixer_jitter.
void RouteSparsely(double jitter, std::span<float> logits) {
  const std::vector<float> all(logits.begin(), logits.end());
  std::vector<float> left = all;
  std::ranges::fill(logits, 0.0f);
  for (int pick = 0; pick < 2; ++pick) {
    const float max = *std::ranges::max_element(left);
    std::vector<float> near = left;
    for (size_t e = 0; e < near.size(); ++e)
      if ((max - all[e]) / std::max(std::abs(all[e]), max) > static_cast<float>(2 * jitter))
        near[e] = kNever;
    const size_t best = TakeBest(left);
    SoftmaxOf(near);
    logits[best] = near[best];
  }
}

}  // namespace

void RouteToken(const RouterSpec& router, int64_t num_experts_per_tok,
                std::span<const float> selection_bias, std::span<float> logits) {
  if (router.scoring == RouterScoring::kSparseMixer)
    return RouteSparsely(*router.sparse_mixer_jitter, logits);
  if (router.scoring == RouterScoring::kSoftmaxThenTopK) SoftmaxOf(logits);
  if (router.scoring == RouterScoring::kSigmoidThenTopK)
    for (float& e : logits) e = 1 / (1 + std::exp(-e));
  std::vector<float> choice(logits.begin(), logits.end());
  for (size_t e = 0; e < selection_bias.size(); ++e) choice[e] += selection_bias[e];
  if (router.groups) DropWeakGroups(*router.groups, choice);
  std::vector<size_t> chosen;
  std::vector<float> weights;
  for (int64_t k = 0; k < num_experts_per_tok; ++k) {
    chosen.push_back(TakeBest(choice));
    weights.push_back(logits[chosen.back()]);
  }
  if (router.scoring == RouterScoring::kTopKThenSoftmax) SoftmaxOf(weights);
  if (router.normalize_top_k) {
    float sum = 0;
    for (const float w : weights) sum += w;
    for (float& w : weights) w /= sum + static_cast<float>(router.normalize_epsilon);
  }
  ScaleRow(router.routed_scaling, static_cast<int64_t>(weights.size()), weights.data());
  std::ranges::fill(logits, 0.0f);
  for (size_t k = 0; k < chosen.size(); ++k) logits[chosen[k]] = weights[k];
}

}  // namespace lockstep

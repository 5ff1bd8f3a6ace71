#include "reference/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/dtype.h"

namespace lockstep {

double Rounded(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNone:
      return value;
    case Rounding::kBF16:
      return ToFloat(ToBFloat16(static_cast<float>(value)));
    case Rounding::kFP16:
      return ToFloat(ToFloat16(static_cast<float>(value)));
    case Rounding::kTwoDecimals:
      return std::nearbyint(value * 100) / 100;
  }
  return value;
}

template <typename T>
void ApplyScale(const Scale& scale, MatrixView<T> x) {
  const T value = static_cast<T>(Rounded(scale.value, scale.rounding));
  if (value == T{1}) return;
  for (size_t t = 0; t < x.rows; ++t)
    for (T& e : x.row(t)) e = scale.divide ? e / value : e * value;
}

template <typename T>
void Norm(const NormSpec& norm, std::span<const float> weight, std::span<const float> bias,
          size_t group_size, MatrixView<const T> x, MatrixView<T> y, const NormRounding& rounding) {
  const bool casts = norm.kind == NormKind::kRms && rounding.normalized != Rounding::kNone;
  std::vector<T> w(group_size, T{1});
  for (size_t i = 0; i < weight.size(); ++i)
    w[i] = static_cast<T>(
        Rounded(static_cast<T>(static_cast<T>(norm.weight_offset) + static_cast<T>(weight[i])),
                norm.weight_rounding));
  for (size_t t = 0; t < x.rows; ++t) {
    for (size_t begin = 0; begin < x.cols; begin += group_size) {
      const T* in = x.row(t).data() + begin;
      T* out = y.row(t).data() + begin;
      // Sums in double: the reference's own error should come from the definition, not from here.
      double sum = 0, squares = 0;
      if (norm.kind == NormKind::kLayer)
        for (size_t i = 0; i < group_size; ++i) sum += in[i];
      const double mean = sum / static_cast<double>(group_size);
      for (size_t i = 0; i < group_size; ++i) {
        const double d = in[i] - mean;
        squares += d * d;
      }
      const T scale = static_cast<T>(Rounded(
          1 / std::sqrt(squares / static_cast<double>(group_size) + norm.eps), rounding.inverse));
      for (size_t i = 0; i < group_size; ++i) {
        T normalized = static_cast<T>(in[i] - mean) * scale;
        if (casts) normalized = static_cast<T>(Rounded(normalized, rounding.normalized));
        out[i] = normalized * w[i];
        if (!bias.empty()) out[i] += static_cast<T>(bias[i]);
      }
    }
  }
}

template <typename T>
T Activate(Activation activation, T x) {
  constexpr T kSqrt2OverPi = static_cast<T>(0.79788456080286535587989211986876);
  switch (activation) {
    case Activation::kSilu:
      return x / (T{1} + std::exp(-x));
    case Activation::kGelu:
      return x * T(0.5) * (T{1} + std::erf(x * static_cast<T>(std::numbers::sqrt2 / 2)));
    case Activation::kGeluTanh:
      return T(0.5) * x * (T{1} + std::tanh(kSqrt2OverPi * (x + T(0.044715) * x * x * x)));
    case Activation::kQuickGelu:
      return x / (T{1} + std::exp(T(-1.702) * x));
    case Activation::kRelu:
      return std::max(x, T{0});
    case Activation::kRelu2: {
      const T positive = std::max(x, T{0});
      return positive * positive;
    }
  }
  return x;
}

template <typename T>
void GatedActivation(const MlpSpec& mlp, MatrixView<const T> up, MatrixView<T> gate) {
  for (size_t t = 0; t < gate.rows; ++t) {
    for (size_t i = 0; i < gate.cols; ++i) {
      T& g = gate(t, i);
      T u = up(t, i);
      if (const auto& clamped = mlp.clamped_glu) {
        const T limit = static_cast<T>(clamped->limit);
        g = std::min(g, limit);
        u = std::clamp(u, -limit, limit);
        g = g / (T{1} + std::exp(-static_cast<T>(clamped->alpha) * g)) *
            (u + static_cast<T>(clamped->up_offset));
      } else {
        g = Activate(mlp.activation, g) * u;
      }
    }
  }
}

template <typename T>
void SoftCap(double cap, std::span<T> x) {
  const T c = static_cast<T>(cap);
  for (T& e : x) e = c * std::tanh(e / c);
}

template <typename T>
void Softmax(std::span<T> x, const T* extra) {
  T max = extra != nullptr ? *extra : x[0];
  for (const T e : x) max = std::max(max, e);
  double sum = extra != nullptr ? std::exp(*extra - max) : T{0};
  for (T& e : x) {
    e = std::exp(e - max);
    sum += e;
  }
  for (T& e : x) e = static_cast<T>(e / sum);
}

namespace {

// The k best of `scores`, best first, lower index first among equals.
template <typename T>
std::vector<size_t> TopK(std::span<const T> scores, size_t k) {
  std::vector<size_t> order(scores.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(k);
  return order;
}

// Scores outside the best groups become -inf. A group's worth is the sum of its best scores
// (DeepseekV3TopkRouter: two; DeepseekV2TopkRouter: one).
template <typename T>
void KeepBestGroups(const RouterGroups& groups, std::span<T> scores) {
  const auto n = static_cast<size_t>(groups.n_group);
  const size_t size = scores.size() / n;
  std::vector<T> worth;
  for (size_t g = 0; g < n; ++g) {
    const std::span<const T> group = scores.subspan(g * size, size);
    T sum = 0;
    for (const size_t i :
         TopK<T>(group, std::min(static_cast<size_t>(groups.best_per_group), size)))
      sum += group[i];
    worth.push_back(sum);
  }
  std::vector<bool> kept(n, false);
  for (const size_t g : TopK<T>(worth, static_cast<size_t>(groups.topk_group))) kept[g] = true;
  for (size_t i = 0; i < scores.size(); ++i)
    if (!kept[i / size]) scores[i] = -std::numeric_limits<T>::infinity();
}

// PhiMoE's sparsemixer, in evaluation: the best expert is weighed by a softmax over the logits that
// lie within a relative 2 * jitter of it; then the same again without it.
template <typename T>
void SparseMixer(double jitter, std::span<T> logits) {
  const std::vector<T> scores(logits.begin(), logits.end());
  std::vector<T> left = scores;
  std::ranges::fill(logits, T{0});
  for (int pick = 0; pick < 2; ++pick) {
    const size_t best = TopK<T>(left, 1)[0];
    const T max = left[best];
    std::vector<T> gates = left;
    for (size_t i = 0; i < gates.size(); ++i) {
      const T factor = std::max(std::abs(scores[i]), max);
      if ((max - scores[i]) / factor > static_cast<T>(2 * jitter))
        gates[i] = -std::numeric_limits<T>::infinity();
    }
    Softmax<T>(gates);
    logits[best] = gates[best];
    left[best] = -std::numeric_limits<T>::infinity();
  }
}

}  // namespace

template <typename T>
void Route(const RouterSpec& router, int64_t num_experts_per_tok,
           std::span<const float> selection_bias, MatrixView<T> logits) {
  for (size_t t = 0; t < logits.rows; ++t) {
    const std::span<T> row = logits.row(t);
    if (router.scoring == RouterScoring::kSparseMixer) {
      SparseMixer(*router.sparse_mixer_jitter, row);
      continue;
    }
    if (router.scoring == RouterScoring::kSoftmaxThenTopK) Softmax<T>(row);
    if (router.scoring == RouterScoring::kSigmoidThenTopK)
      for (T& e : row) e = T{1} / (T{1} + std::exp(-e));

    std::vector<T> choice(row.begin(), row.end());
    for (size_t i = 0; i < selection_bias.size(); ++i)
      choice[i] += static_cast<T>(selection_bias[i]);
    if (router.groups) KeepBestGroups<T>(*router.groups, choice);
    const std::vector<size_t> chosen = TopK<T>(choice, static_cast<size_t>(num_experts_per_tok));

    std::vector<T> weights;
    for (const size_t i : chosen) weights.push_back(row[i]);
    if (router.scoring == RouterScoring::kTopKThenSoftmax) Softmax<T>(weights);
    if (router.normalize_top_k) {
      T sum = 0;
      for (const T w : weights) sum += w;
      sum += static_cast<T>(router.normalize_epsilon);
      for (T& w : weights) w /= sum;
    }
    ApplyScale<T>(router.routed_scaling, {weights.data(), 1, weights.size()});
    std::ranges::fill(row, T{0});
    for (size_t k = 0; k < chosen.size(); ++k) row[chosen[k]] = weights[k];
  }
}

#define LS_INSTANTIATE(T)                                                                        \
  template void ApplyScale<T>(const Scale&, MatrixView<T>);                                      \
  template void Norm<T>(const NormSpec&, std::span<const float>, std::span<const float>, size_t, \
                        MatrixView<const T>, MatrixView<T>, const NormRounding&);                \
  template T Activate<T>(Activation, T);                                                         \
  template void GatedActivation<T>(const MlpSpec&, MatrixView<const T>, MatrixView<T>);          \
  template void SoftCap<T>(double, std::span<T>);                                                \
  template void Softmax<T>(std::span<T>, const T*);                                              \
  template void Route<T>(const RouterSpec&, int64_t, std::span<const float>, MatrixView<T>);
LS_INSTANTIATE(float)
LS_INSTANTIATE(double)
#undef LS_INSTANTIATE

}  // namespace lockstep

#include "onnx_ops/experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 5> kActivations = {"relu", "silu", "gelu", "identity",
                                                          "swiglu"};

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

float Activate(const ExpertActivation& activation, const float* fc1, int64_t i) {
  if (activation.kind == "swiglu") {
    double gate = fc1[2 * i], up = fc1[2 * i + 1];
    if (activation.limit) {
      const double limit = *activation.limit;
      gate = std::min(gate, limit);
      up = std::max(std::min(up, limit), -limit);
    }
    return static_cast<float>(gate * Sigmoid(activation.alpha * gate) * (up + activation.beta));
  }
  const double x = fc1[i];
  if (activation.kind == "silu") return static_cast<float>(x * Sigmoid(x));
  if (activation.kind == "gelu")
    return static_cast<float>(0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))));
  if (activation.kind == "relu") return static_cast<float>(std::max(x, 0.0));
  return fc1[i];
}

// y[t * rows + n] = weights[n] . x[t] + bias[n], rounding each x[t] first where that is asked for.
std::vector<float> Multiply(const ExpertMatrix& matrix, int64_t expert, std::vector<float>& x,
                            int64_t tokens, ThreadPool* pool) {
  const std::vector<float> weights = matrix.weights(expert);
  const auto cols = static_cast<size_t>(matrix.cols);
  if (matrix.int8_block)
    for (int64_t t = 0; t < tokens; ++t)
      RoundToInt8(std::span(x).subspan(static_cast<size_t>(t) * cols, cols), *matrix.int8_block);
  std::vector<float> y(static_cast<size_t>(tokens * matrix.rows));
  ForEach(pool, static_cast<size_t>(matrix.rows), [&](size_t n) {
    const double bias =
        matrix.bias.empty() ? 0 : matrix.bias[static_cast<size_t>(expert * matrix.rows) + n];
    for (int64_t t = 0; t < tokens; ++t)
      y[static_cast<size_t>(t * matrix.rows) + n] = static_cast<float>(
          Dot(weights.data() + n * cols, x.data() + static_cast<size_t>(t) * cols, matrix.cols) +
          bias);
  });
  return y;
}

}  // namespace

ExpertActivation ExpertActivationOf(const OpCall& call) {
  ExpertActivation activation{.kind = StringOf(call, "activation_type", "relu"),
                              .alpha = FloatOf(call, "activation_alpha", 1),
                              .beta = FloatOf(call, "activation_beta", 0),
                              .limit = {}};
  if (HasAttribute(call, "swiglu_limit")) activation.limit = FloatOf(call, "swiglu_limit", 0);
  return activation;
}

Refusal CheckExpertAttributes(const OpCall& call) {
  const int64_t k = IntOf(call, "k", 1);
  if (k < 1) return LoadFails(call, "k is {}, expected at least 1; say how many experts run", k);
  const std::string kind = StringOf(call, "activation_type", "relu");
  if (std::find(kActivations.begin(), kActivations.end(), kind) == kActivations.end())
    return LoadFails(
        call,
        "activation_type is {}, but the CPU knows {} (in lower case); use one of them, "
        "or plain operators",
        Quoted(kind), fmt::join(kActivations, ", "));
  const int64_t fusion = IntOf(call, "swiglu_fusion", 0);
  if (kind == "swiglu" && fusion != 1)
    return LoadFails(call,
                     "swiglu_fusion is {}, but the CPU only takes 1: gate and up rows interleaved; "
                     "interleave FC1's rows and write 1",
                     fusion);
  if (kind != "swiglu" && fusion != 0)
    return Unsafe(call,
                  "the flag alone doubles FC1's width, and memory past the weights is read: "
                  "garbage or NaN",
                  "swiglu_fusion is {} with the activation {}, which is not swiglu; leave the "
                  "attribute out",
                  fusion, Quoted(kind));
  if (IntOf(call, "swiglu_limit_after_activation", 0) != 0)
    return LoadFails(call,
                     "swiglu_limit_after_activation is not 0, which only CUDA knows; clamp "
                     "before the activation, or leave it out");
  return {};
}

std::vector<float> MixExperts(const ExpertRouting& routing, std::span<const float> logits,
                              std::span<const float> given, int64_t num_experts) {
  std::vector<float> mix(logits.size(), 0.0f);
  const auto experts = static_cast<size_t>(num_experts);
  std::vector<bool> taken(experts);
  std::vector<size_t> chosen;
  std::vector<double> weights;
  for (size_t at = 0; at < logits.size(); at += experts) {
    const auto row = logits.subspan(at, experts);
    taken.assign(experts, false);
    chosen.clear();
    weights.clear();
    // A NaN is never larger than anything and so is taken last.
    for (int64_t i = 0; i < routing.k; ++i) {
      size_t best = experts;
      for (size_t e = 0; e < experts; ++e) {
        if (taken[e]) continue;
        if (best == experts || row[e] > row[best] ||
            (routing.higher_index_wins_ties && row[e] == row[best]))
          best = e;
      }
      taken[best] = true;
      chosen.push_back(best);
    }
    double most = row[chosen[0]], sum = 0;
    for (const float x : row) most = std::max<double>(most, x);
    const bool all = routing.rule == ExpertRouting::Rule::kSoftmaxOfAll;
    const bool as_given = routing.rule == ExpertRouting::Rule::kGiven ||
                          routing.rule == ExpertRouting::Rule::kGivenNormalized;
    for (const size_t e : chosen)
      weights.push_back(as_given ? given[at + e] : std::exp(double{row[e]} - most));
    if (all)
      for (const float x : row) sum += std::exp(double{x} - most);
    else
      for (const double w : weights) sum += w;
    if (routing.rule == ExpertRouting::Rule::kGiven) sum = 1;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const double w = weights[i] / sum;
      // As the runtime does: what weighs nothing, or less, is not run.
      mix[at + chosen[i]] = w > 1e-8 ? static_cast<float>(w) : 0.0f;
    }
  }
  return mix;
}

std::vector<float> RunExperts(std::span<const float> input, std::span<const float> mix,
                              int64_t num_experts, const ExpertMatrix& fc1, const ExpertMatrix& fc2,
                              const ExpertActivation& activation, ThreadPool* pool) {
  const auto hidden = static_cast<size_t>(fc1.cols);
  const auto inter = static_cast<size_t>(fc2.cols);
  const size_t tokens = input.size() / hidden;
  std::vector<double> sum(tokens * hidden, 0.0);
  for (int64_t e = 0; e < num_experts; ++e) {
    std::vector<size_t> here;
    for (size_t t = 0; t < tokens; ++t)
      if (mix[t * static_cast<size_t>(num_experts) + static_cast<size_t>(e)] != 0)
        here.push_back(t);
    if (here.empty()) continue;
    std::vector<float> x;
    for (const size_t t : here)
      x.insert(x.end(), input.begin() + static_cast<std::ptrdiff_t>(t * hidden),
               input.begin() + static_cast<std::ptrdiff_t>((t + 1) * hidden));
    const auto count = static_cast<int64_t>(here.size());
    const std::vector<float> h = Multiply(fc1, e, x, count, pool);
    std::vector<float> a(here.size() * inter);
    for (size_t t = 0; t < here.size(); ++t)
      for (size_t i = 0; i < inter; ++i)
        a[t * inter + i] = Activate(activation, h.data() + t * static_cast<size_t>(fc1.rows),
                                    static_cast<int64_t>(i));
    const std::vector<float> y = Multiply(fc2, e, a, count, pool);
    for (size_t t = 0; t < here.size(); ++t) {
      const double w = mix[here[t] * static_cast<size_t>(num_experts) + static_cast<size_t>(e)];
      for (size_t i = 0; i < hidden; ++i) sum[here[t] * hidden + i] += w * y[t * hidden + i];
    }
  }
  return {sum.begin(), sum.end()};
}

}  // namespace lockstep

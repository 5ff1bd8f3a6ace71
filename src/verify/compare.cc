#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Equal infinities (a masked id) are no difference; a NaN never equals anything.
double Distance(double a, double b) {
  if (a == b) return 0;
  const double d = std::abs(a - b);
  return std::isnan(d) ? kInfinity : d;
}

// log(sum(exp(x))), shifted by the maximum so that nothing overflows.
double LogSumExp(std::span<const double> x) {
  const double top = *std::max_element(x.begin(), x.end());
  if (!std::isfinite(top)) return top;
  double sum = 0;
  for (const double v : x) sum += std::exp(v - top);
  return top + std::log(sum);
}

TopTwo TopTwoOf(const SparseRow& row) {
  const TopTwo top = FindTopTwo(row.logprobs);
  return {row.ids[static_cast<size_t>(top.first)], top.gap};
}

}  // namespace

double AssumedNoise(std::span<const double> logits) {
  double largest = 0;
  for (const double x : logits)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  return kAssumedNoiseUlps * std::numeric_limits<float>::epsilon() * largest;
}

int64_t FirstNotFinite(std::span<const double> logits) {
  const auto found =
      std::find_if_not(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); });
  return found == logits.end() ? -1 : found - logits.begin();
}

TopTwo FindTopTwo(std::span<const double> logits) {
  TopTwo top;
  double best = -kInfinity, second = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      second = best;
      best = logits[i];
      top.first = static_cast<int32_t>(i);
    } else if (logits[i] > second) {
      second = logits[i];
    }
  }
  top.gap = std::isfinite(second) ? best - second : 0;
  return top;
}

double MaxAbsDifference(std::span<const double> a, std::span<const double> b) {
  LS_CHECK(a.size() == b.size(), "{} and {} logits", a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, Distance(a[i], b[i]));
  return worst;
}

RowDifference CompareRows(std::span<const double> a, std::span<const double> b) {
  LS_CHECK(a.size() == b.size() && !a.empty(), "{} and {} logits", a.size(), b.size());
  RowDifference out;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = Distance(a[i], b[i]);
    if (d > out.max_abs) {
      out.max_abs = d;
      out.worst = static_cast<int64_t>(i);
    }
  }
  out.a = FindTopTwo(a);
  out.b = FindTopTwo(b);
  out.same_top1 = out.a.first == out.b.first;
  const double log_a = LogSumExp(a), log_b = LogSumExp(b);
  double kl = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double p = std::exp(a[i] - log_a);
    if (p > 0) kl += p * ((a[i] - log_a) - (b[i] - log_b));
  }
  // Rounding may leave a KL of nearly equal rows a little below 0.
  out.kl = std::isnan(kl) ? kInfinity : std::max(kl, 0.0);
  return out;
}

SparseRow ShownOf(std::span<const double> logits, std::span<const int32_t> ids) {
  SparseRow out;
  const double total = LogSumExp(logits);
  for (const int32_t id : ids) {
    LS_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size(), "id {} of {}", id, logits.size());
    out.ids.push_back(id);
    out.logprobs.push_back(logits[static_cast<size_t>(id)] - total);
  }
  return out;
}

std::optional<RowDifference> CompareShown(const SparseRow& a, const SparseRow& b) {
  RowDifference out;
  double rest_a = 1, rest_b = 1, kl = 0;
  bool any = false;
  for (size_t i = 0; i < a.ids.size(); ++i) {
    const auto found = std::find(b.ids.begin(), b.ids.end(), a.ids[i]);
    if (found == b.ids.end()) continue;
    const double x = a.logprobs[i];
    const double y = b.logprobs[static_cast<size_t>(found - b.ids.begin())];
    const double d = Distance(x, y);
    if (!any || d > out.max_abs) {
      out.max_abs = d;
      out.worst = a.ids[i];
    }
    any = true;
    const double p = std::exp(x), q = std::exp(y);
    if (p > 0) kl += p * (x - y);
    rest_a -= p;
    rest_b -= q;
  }
  if (!any) return std::nullopt;
  // What is left of 1 after so many subtractions is rounding below some 1e-9.
  if (rest_a > 1e-9 && rest_b > 1e-9) kl += rest_a * std::log(rest_a / rest_b);
  out.kl = std::isnan(kl) ? kInfinity : std::max(kl, 0.0);
  out.a = TopTwoOf(a);
  out.b = TopTwoOf(b);
  out.same_top1 = out.a.first == out.b.first;
  return out;
}

}  // namespace lockstep

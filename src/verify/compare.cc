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

}  // namespace lockstep

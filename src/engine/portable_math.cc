#include "engine/portable_math.h"

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

// ln 2 in two parts: the first has trailing zeros, so that k * kLn2High is exact (fdlibm's
// constants).
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;

}  // namespace

double PortableExp(double x) {
  if (std::isnan(x)) return x;
  if (x > 710) return std::numeric_limits<double>::infinity();
  if (x < -745) return 0;
  // x = k ln 2 + r with |r| <= 0.35, then Taylor's series: r^14 / 14! is below 2^-56.
  const double k = std::floor(x * 1.44269504088896338700 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int i = 14; i >= 1; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(k));  // exact but for subnormals, which round once
}

double PortableLog(double x) {
  if (std::isnan(x) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  int k = 0;
  double m = std::frexp(x, &k);  // [0.5, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --k;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: s^23 / 23 is below 2^-60.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int i = 23; i >= 1; i -= 2) sum = sum * s2 + 1.0 / i;
  return k * kLn2High + (2 * s * sum + k * kLn2Low);
}

}  // namespace lockstep

#include "engine/portable_math.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

// ln 2 in two parts: the first has trailing zeros, so that k * kLn2High is exact (fdlibm's
// constants).
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;

// Adding 1.5 * 2^52 leaves a number's integer part, rounded, in the last bits.
constexpr double kShift = 6755399441055744.0;

// exp(x) = 2^k Mantissa, k = shifted - kShift: x = k ln 2 + r with |r| <= 0.35, then Taylor's
// series: r^14 / 14! is below 2^-56. V is double or several of them.
template <typename V>
inline V Mantissa(V x, V& shifted) {
  shifted = x * 1.44269504088896338700 + kShift;
  const V k = shifted - kShift;
  const V r = (x - k * kLn2High) - k * kLn2Low;
  V sum = r * (1.0 / 87178291200) + 1.0 / 6227020800;  // 1 / 14!, 1 / 13!
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 1.0 / 2;
  sum = sum * r + 1;
  sum = sum * r + 1;
  return sum;
}

// Below this, 2^k is no normal number.
constexpr double kLeastNormal = -708;

// Two at a time, which every processor's vectors hold: the compiler does not turn the scalar loop
// into that, since comparisons may trap.
typedef double Doubles __attribute__((vector_size(16)));
typedef uint64_t Bits __attribute__((vector_size(16)));

}  // namespace

double PortableExp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709) return std::numeric_limits<double>::infinity();
  if (x < -745) return 0;
  double shifted = 0;
  const double mantissa = Mantissa(x, shifted);
  return std::ldexp(mantissa, static_cast<int>(shifted - kShift));  // subnormals round once
}

void PortableExps(std::span<const float> scores, double max, double* out) {
  size_t i = 0;
  for (; i + 2 <= scores.size(); i += 2) {
    const Doubles x = {scores[i] - max, scores[i + 1] - max};
    Doubles shifted;
    const Doubles mantissa =
        Mantissa(x < kLeastNormal ? Doubles{kLeastNormal, kLeastNormal} : x, shifted);
    const Doubles power = (Doubles)(((Bits)shifted + 1023) << 52);  // 2^k
    const Doubles exp = mantissa * power;
    out[i] = exp[0];
    out[i + 1] = exp[1];
    for (size_t lane = 0; lane < 2; ++lane)
      if (x[lane] < kLeastNormal) [[unlikely]]
        out[i + lane] = PortableExp(x[lane]);
  }
  if (i < scores.size()) out[i] = PortableExp(scores[i] - max);
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

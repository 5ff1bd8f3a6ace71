#include "quant/grid_loops.h"

#include <algorithm>
#include <cstring>

namespace lockstep::grid {
namespace {

// Eight floats (or 32-bit integers) at once, in whatever registers the machine has. Spelled out,
// because g++ 12 turns loops over eight lanes inside out.
constexpr size_t kLanes = 8;
// Always: a call that passes such a vector means something else in each of the clones below.
#define LS_INLINE [[gnu::always_inline]] inline
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kLanes)));

LS_INLINE Floats Load(const float* x) {
  Floats v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

// To the nearest integers, ties to even: adding 1.5 * 2^23 leaves no room for a fraction. For
// |x| < 2^22.
LS_INLINE Floats Nearest(Floats x) { return (x + 12582912.0f) - 12582912.0f; }
LS_INLINE Floats Clamp(Floats x, Floats low, Floats high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
LS_INLINE Floats Fill(float x) { return Floats{} + x; }
LS_INLINE float Nearest1(float x) { return (x + 12582912.0f) - 12582912.0f; }
LS_INLINE float Clamp1(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// The hot loops exist twice and the machine chooses. Lanes are fixed and nothing is contracted, so
// both give the same bits. Not under the sanitizers, which are not set up when resolvers run.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define LS_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LS_CLONES
#endif

}  // namespace

LS_CLONES Sums SumsAt(const float* x, size_t n, float inverse, float low, float high) {
  Floats xq = {}, qq = {};
  const Floats lows = Fill(low), highs = Fill(high);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = Load(x + i);
    const Floats q = Clamp(Nearest(v * inverse), lows, highs);
    xq += v * q;
    qq += q * q;
  }
  Sums sums;
  for (; i < n; ++i) {
    const float q = Clamp1(Nearest1(x[i] * inverse), low, high);
    sums.xq += x[i] * q;
    sums.qq += q * q;
  }
  for (size_t j = 0; j < kLanes; ++j) {
    sums.xq += xq[j];
    sums.qq += qq[j];
  }
  return sums;
}

LS_CLONES Sums WeightedSumsAt(const float* x, const float* w, size_t n, float inverse, float low,
                              float high) {
  Floats xq = {}, qq = {};
  const Floats lows = Fill(low), highs = Fill(high);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = Load(x + i);
    const Floats q = Clamp(Nearest(v * inverse), lows, highs);
    const Floats wq = Load(w + i) * q;
    xq += v * wq;
    qq += q * wq;
  }
  Sums sums;
  for (; i < n; ++i) {
    const float q = Clamp1(Nearest1(x[i] * inverse), low, high);
    sums.xq += x[i] * (w[i] * q);
    sums.qq += q * (w[i] * q);
  }
  for (size_t j = 0; j < kLanes; ++j) {
    sums.xq += xq[j];
    sums.qq += qq[j];
  }
  return sums;
}

LS_CLONES void CodesAt(const float* x, size_t n, float inverse, float low, float high, float zero,
                       uint8_t* codes) {
  const Floats lows = Fill(low), highs = Fill(high);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats q = Clamp(Nearest(Load(x + i) * inverse), lows, highs);
    const Ints code = __builtin_convertvector(q + zero, Ints);
    for (size_t j = 0; j < kLanes; ++j) codes[i + j] = static_cast<uint8_t>(code[j]);
  }
  for (; i < n; ++i)
    codes[i] =
        static_cast<uint8_t>(static_cast<int>(Clamp1(Nearest1(x[i] * inverse), low, high) + zero));
}

LS_CLONES double ErrorAt(const float* x, const uint8_t* codes, size_t n, float scale, float zero) {
  double sum[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      const float value = (static_cast<float>(codes[i + j]) - zero) * scale;
      const double d = static_cast<double>(x[i + j]) - static_cast<double>(value);
      sum[j] += d * d;
    }
  for (; i < n; ++i) {
    const double d = double{x[i]} - (static_cast<float>(codes[i]) - zero) * scale;
    sum[0] += d * d;
  }
  double total = 0;
  for (const double lane : sum) total += lane;
  return total;
}

LS_CLONES void RangeOf(const float* x, size_t n, float* low, float* high) {
  Floats least = {}, most = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = Load(x + i);
    least = v < least ? v : least;
    most = v > most ? v : most;
  }
  *low = *high = 0;
  for (; i < n; ++i) {
    *low = std::min(*low, x[i]);
    *high = std::max(*high, x[i]);
  }
  for (size_t j = 0; j < kLanes; ++j) {
    *low = std::min(*low, least[j]);
    *high = std::max(*high, most[j]);
  }
}

}  // namespace lockstep::grid

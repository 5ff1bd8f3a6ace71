// Plain twins of the kernels, in double precision and in the order of the formulas, and the numbers
// to try both with. For kernel_checks.h, which unit tests and the fuzz target share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kv_page.h"

namespace lockstep {

// How numbers are drawn.
enum class Style : uint8_t {
  kOrdinary,  // within -1 and 1
  kWide,      // of any size between 2^-24 and 2^24
  kTiny,      // denormal, or zero
  kHuge,      // up to 1e37
  kZero,
  kMixed,  // ordinary, with zeros and denormals between
};
inline constexpr int kStyles = 6;

// Shapes and numbers from given bytes (a fuzzer's), and when they are used up from a hash of them.
class Source {
 public:
  explicit Source(uint64_t seed) : state_(seed) {}
  explicit Source(std::span<const uint8_t> bytes) : bytes_(bytes) {
    for (const uint8_t byte : bytes) state_ = Mix(state_ ^ byte);
  }

  uint64_t Bits() {
    if (bytes_.empty()) return Mix(state_ += 0x9e3779b97f4a7c15u);
    uint64_t bits = 0;
    const size_t n = std::min<size_t>(8, bytes_.size());
    std::memcpy(&bits, bytes_.data(), n);
    bytes_ = bytes_.subspan(n);
    return bits;
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Bits() % static_cast<uint64_t>(n)); }
  int64_t Between(int64_t least, int64_t most) { return least + Below(most - least + 1); }

  float Number(Style style) {
    const uint64_t bits = Bits();
    const float unit = static_cast<float>(static_cast<int64_t>(bits & 0xffffff) - 0x800000) /
                       8388608.0f;  // [-1, 1)
    const auto small = static_cast<int>(bits >> 32 & 0xffff);
    switch (style) {
      case Style::kOrdinary:
        return unit;
      case Style::kWide:
        return std::ldexp(unit, small % 49 - 24);
      case Style::kTiny:
        return small % 8 == 0 ? 0.0f : std::ldexp(unit, -126 - small % 24);
      case Style::kHuge:
        return unit * 1e37f;
      case Style::kZero:
        return small % 2 == 0 ? 0.0f : -0.0f;
      case Style::kMixed:
        return small % 4 == 0 ? 0.0f : small % 4 == 1 ? std::ldexp(unit, -130) : unit;
    }
    return 0;
  }
  std::vector<float> Numbers(int64_t n, Style style) {
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& x : numbers) x = Number(style);
    return numbers;
  }

 private:
  static uint64_t Mix(uint64_t x) {  // Sebastiano Vigna's SplitMix64 (public domain)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::span<const uint8_t> bytes_;
  uint64_t state_ = 0;
};

inline uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
// The same number; any NaN is any other.
inline bool Same(float a, float b) {
  return BitsOf(a) == BitsOf(b) || (std::isnan(a) && std::isnan(b));
}

// 64-byte aligned memory that kernels may read a little past the end of.
template <typename T>
class Aligned {
 public:
  explicit Aligned(int64_t n) : memory_(static_cast<size_t>(n) * sizeof(T) + 320), size_(n) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = reinterpret_cast<T*>(memory_.data() + (64 - address % 64) % 64);
  }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data() { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  std::vector<std::byte> memory_;
  int64_t size_;
  T* data_;
};

// --- Rows ---

inline std::vector<double> RmsNormTwin(std::span<const float> x, std::span<const float> weight,
                                       double eps) {
  double squares = 0;
  for (const float v : x) squares += double{v} * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
  return y;
}
inline double SiluTwin(double x) { return x / (1 + std::exp(-x)); }
inline double GeluTanhTwin(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

// --- Attention ---

// A number as the cache gives it back.
inline float Stored(KvType type, float x) {
  if (type == KvType::kF16) return ToFloat(ToFloat16(x));
  if (type == KvType::kBF16 || type == KvType::kQ16) return ToFloat(ToBFloat16(x));
  return x;
}
// Blocks of 32 to codes of at most `most` and back.
inline void ThroughCodes(float most, std::span<float> x) {
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const auto block = x.subspan(begin, std::min<size_t>(32, x.size() - begin));
    float largest = 0;
    for (const float v : block) largest = std::max(largest, std::abs(v));
    const double scale = largest / most;
    for (float& v : block)
      v = largest > 1e-34f ? static_cast<float>(scale * std::nearbyint(v * (most / largest))) : 0;
  }
}
inline std::vector<float> StoredKey(KvType type, std::span<const float> key) {
  std::vector<float> stored(key.begin(), key.end());
  if (type == KvType::kQ16) ThroughCodes(8191, stored);
  if (type == KvType::kQ8) ThroughCodes(127, stored);
  if (type == KvType::kF16 || type == KvType::kBF16)
    for (float& x : stored) x = Stored(type, x);
  return stored;
}
inline std::vector<float> StoredValue(KvType type, std::span<const float> value) {
  std::vector<float> stored(value.begin(), value.end());
  if (type == KvType::kQ8) ThroughCodes(127, stored);
  for (float& x : stored) x = Stored(type, x);
  return stored;
}

// One query of one head over keys [0, position].
struct AttentionTwin {
  std::vector<double> out;
  std::vector<double> magnitude;  // of the terms that made out
  double score_size = 0;          // the largest sum of magnitudes in a score
};
inline AttentionTwin AttendTwin(std::span<const float> q,
                                const std::vector<std::vector<float>>& keys,
                                const std::vector<std::vector<float>>& values, int64_t position,
                                double scale, int64_t window, double softcap, const float* sink) {
  const int64_t from = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  AttentionTwin twin;
  std::vector<double> scores;
  double most = sink != nullptr ? double{*sink} : -std::numeric_limits<double>::infinity();
  for (int64_t p = from; p <= position; ++p) {
    double dot = 0, size = 0;
    for (size_t d = 0; d < q.size(); ++d) {
      const double term = double{q[d]} * scale * keys[static_cast<size_t>(p)][d];
      dot += term;
      size += std::abs(term);
    }
    if (softcap != 0) dot = softcap * std::tanh(dot / softcap);
    twin.score_size = std::max(twin.score_size, size);
    scores.push_back(dot);
    most = std::max(most, dot);
  }
  double sum = sink != nullptr ? std::exp(double{*sink} - most) : 0;
  for (double& s : scores) sum += s = std::exp(s - most);
  twin.out.resize(values.front().size());
  twin.magnitude.resize(values.front().size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::vector<float>& value = values[static_cast<size_t>(from) + i];
    for (size_t d = 0; d < value.size(); ++d) {
      twin.out[d] += scores[i] / sum * value[d];
      twin.magnitude[d] += scores[i] / sum * std::abs(double{value[d]});
    }
  }
  return twin;
}

}  // namespace lockstep

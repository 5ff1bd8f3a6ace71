// The search behind the block formats: scales and codes with a small sum of squared errors. Plain
// least squares, no weights: for codes that are fixed the best scale has a closed form, for a scale
// that is fixed the best codes are the nearest ones; a few starts and a few rounds of both.
//
// A Grid is what codes stand for: kSize codes, Encode(y) the code nearest to y, Value(code), and
// the starts: kStarts numbers to which the element of largest magnitude is mapped.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace lockstep::fit {

// Nearest integer, ties to even; |x| below 2^22. The addition does the rounding, so loops
// vectorise.
inline int32_t Nearest(float x) {
  const float shifted = x + 12582912.0f;  // 1.5 * 2^23
  return (std::bit_cast<int32_t>(shifted) & 0x007fffff) - 0x00400000;
}

// Integers kLow to kHigh. Start 0 maps the largest element to kLow, the middle one to kHigh.
template <int kLow, int kHigh, int kTries = 9>
struct Integers {
  static constexpr int kStarts = 2 * (2 * kTries + 1);
  static int32_t Encode(float y) {
    return Nearest(std::min(std::max(y, float{kLow}), float{kHigh}));
  }
  static float Value(int32_t code) { return static_cast<float>(code); }
  static float Start(int i) {
    const int step = i / 2 - kTries;
    return i % 2 == 0 ? kLow + 0.1f * static_cast<float>(step)
                      : kHigh + 0.1f * static_cast<float>(step);
  }
};

template <typename Grid, int kN>
float ErrorOf(const float* x, float scale, int32_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  float error = 0;
  for (int i = 0; i < kN; ++i) {
    codes[i] = Grid::Encode(x[i] * inverse);
    const float difference = x[i] - scale * Grid::Value(codes[i]);
    error += difference * difference;
  }
  return error;
}

// The scale that is best for the codes nearest at `inverse`; `gain` is by how much they lower the
// sum of squares of x.
template <typename Grid, int kN>
float BestScaleAt(const float* x, float inverse, float& gain) {
  float xq = 0, qq = 0;
  for (int i = 0; i < kN; ++i) {
    const float q = Grid::Value(Grid::Encode(x[i] * inverse));
    xq += x[i] * q;
    qq += q * q;
  }
  gain = qq > 0 ? xq * xq / qq : 0;
  return qq > 0 ? xq / qq : 0;
}

// x[i] ~ scale * value: the best scale found, of either sign.
template <typename Grid, int kN>
float FitScale(const float* x) {
  float largest = 0;
  for (int i = 0; i < kN; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  if (std::abs(largest) < 1e-30f) return 0;
  float best = 0, best_gain = 0;
  const auto consider = [&](float inverse) {
    float gain;
    const float scale = BestScaleAt<Grid, kN>(x, inverse, gain);
    if (gain > best_gain) {
      best_gain = gain;
      best = scale;
    }
  };
  for (int start = 0; start < Grid::kStarts; ++start) consider(Grid::Start(start) / largest);
  for (int round = 0; round < 2 && best != 0; ++round) consider(1 / best);
  return best;
}

inline float16 NextHalf(float16 x, int step) {
  const int magnitude = (x.bits & 0x7fff) + step;
  if (magnitude < 0 || magnitude >= 0x7c00) return x;
  return {static_cast<uint16_t>((x.bits & 0x8000) | magnitude)};
}

inline void StoreHalf(float16 x, std::byte* to) { std::memcpy(to, &x, sizeof x); }

// A block of one half scale: the scale and the codes.
template <typename Grid, int kN>
float16 FitBlock(const float* x, int32_t* codes) {
  const float16 middle = ToFloat16(FitScale<Grid, kN>(x));
  float16 best = middle;
  float best_error = ErrorOf<Grid, kN>(x, ToFloat(middle), codes);
  std::array<int32_t, kN> tried;
  for (const int step : {-1, 1}) {
    const float16 other = NextHalf(middle, step);
    const float error = ErrorOf<Grid, kN>(x, ToFloat(other), tried.data());
    if (error >= best_error) continue;
    best_error = error;
    best = other;
    std::copy(tried.begin(), tried.end(), codes);
  }
  return best;
}

// x[i] ~ scale * q + minimum with q from 0 to kMax.
struct Line {
  float scale = 0, minimum = 0;
};

template <int kMax, int kN>
float ErrorOfLine(const float* x, Line line, int32_t* codes) {
  const float inverse = line.scale != 0 ? 1 / line.scale : 0;
  float error = 0;
  for (int i = 0; i < kN; ++i) {
    codes[i] = Nearest(std::min(std::max((x[i] - line.minimum) * inverse, 0.0f), float{kMax}));
    const float difference = x[i] - (line.scale * static_cast<float>(codes[i]) + line.minimum);
    error += difference * difference;
  }
  return error;
}

// `negative`: the minimum must not be above 0, as in the formats that subtract it.
template <int kMax, int kN>
Line FitLine(const float* x, bool negative) {
  float low = x[0], high = x[0];
  for (int i = 1; i < kN; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (negative) low = std::min(low, 0.0f);
  if (!(high - low > 1e-30f)) return {0, low};
  std::array<int32_t, kN> codes;
  Line best{(high - low) / kMax, low};
  float best_error = ErrorOfLine<kMax, kN>(x, best, codes.data());
  const auto improve = [&](Line line) {
    ErrorOfLine<kMax, kN>(x, line, codes.data());
    float sum_x = 0, sum_q = 0, sum_qq = 0, sum_xq = 0;
    for (int i = 0; i < kN; ++i) {
      const auto q = static_cast<float>(codes[i]);
      sum_x += x[i];
      sum_q += q;
      sum_qq += q * q;
      sum_xq += x[i] * q;
    }
    const float determinant = kN * sum_qq - sum_q * sum_q;
    if (!(determinant > 0)) return;
    Line fitted{(kN * sum_xq - sum_q * sum_x) / determinant,
                (sum_qq * sum_x - sum_q * sum_xq) / determinant};
    if (negative && fitted.minimum > 0) fitted = {sum_xq / sum_qq, 0};
    if (!(fitted.scale > 0)) return;
    const float error = ErrorOfLine<kMax, kN>(x, fitted, codes.data());
    if (error >= best_error) return;
    best_error = error;
    best = fitted;
  };
  // The largest element at kMax - 1.5 to kMax + 1.5, and the lowest as it is.
  for (int step = -15; step <= 15; ++step)
    improve({(high - low) / (kMax + 0.1f * static_cast<float>(step)), low});
  for (int round = 0; round < 3; ++round) improve(best);
  return best;
}

// A block of a half scale and a half minimum.
template <int kMax, int kN>
std::array<float16, 2> FitLineBlock(const float* x, int32_t* codes) {
  const Line line = FitLine<kMax, kN>(x, false);
  const float16 scale = ToFloat16(line.scale), minimum = ToFloat16(line.minimum);
  std::array<float16, 2> best = {scale, minimum};
  float best_error = ErrorOfLine<kMax, kN>(x, {ToFloat(scale), ToFloat(minimum)}, codes);
  std::array<int32_t, kN> tried;
  for (const int scale_step : {-1, 0, 1}) {
    for (const int minimum_step : {-1, 0, 1}) {
      const float16 d = NextHalf(scale, scale_step), m = NextHalf(minimum, minimum_step);
      const float error = ErrorOfLine<kMax, kN>(x, {ToFloat(d), ToFloat(m)}, tried.data());
      if (error >= best_error) continue;
      best_error = error;
      best = {d, m};
      std::copy(tried.begin(), tried.end(), codes);
    }
  }
  return best;
}

// 256 elements in groups: element = d * scale * value, scales whole numbers.
template <int kSize>
struct SuperBlock {
  static constexpr int kGroups = 256 / kSize;
  float16 d{}, dmin{};
  std::array<int32_t, kGroups> scales{}, minima{};
  std::array<int32_t, 256> codes{};
};

template <typename Grid, int kSize, int kLowScale, int kHighScale>
SuperBlock<kSize> FitSuperBlock(const float* x) {
  using Block = SuperBlock<kSize>;
  std::array<float, Block::kGroups> wanted;
  float largest = 0;
  for (int g = 0; g < Block::kGroups; ++g) {
    wanted[g] = FitScale<Grid, kSize>(x + g * kSize);
    if (std::abs(wanted[g]) > std::abs(largest)) largest = wanted[g];
  }
  Block best;
  for (int i = 0; i < 256; ++i) best.codes[i] = Grid::Encode(0);
  if (largest == 0) return best;
  float best_error = -1;
  for (const int end : {kLowScale, kHighScale}) {
    float d = largest / static_cast<float>(end);
    for (int round = 0; round < 3; ++round) {
      Block block;
      block.d = ToFloat16(d);
      const float stored = ToFloat(block.d);
      if (stored == 0) break;
      float error = 0, xv = 0, vv = 0;
      for (int g = 0; g < Block::kGroups; ++g) {
        const float* group = x + g * kSize;
        const int32_t middle = static_cast<int32_t>(
            std::lround(std::clamp(wanted[g] / stored, float{kLowScale}, float{kHighScale})));
        float group_error = -1;
        std::array<int32_t, kSize> tried;
        for (int32_t s = std::max(middle - 1, kLowScale); s <= std::min(middle + 1, kHighScale);
             ++s) {
          const float tried_error =
              ErrorOf<Grid, kSize>(group, stored * static_cast<float>(s), tried.data());
          if (group_error >= 0 && tried_error >= group_error) continue;
          group_error = tried_error;
          block.scales[g] = s;
          std::copy(tried.begin(), tried.end(), block.codes.begin() + g * kSize);
        }
        error += group_error;
        for (int i = 0; i < kSize; ++i) {
          const float v =
              static_cast<float>(block.scales[g]) * Grid::Value(block.codes[g * kSize + i]);
          xv += group[i] * v;
          vv += v * v;
        }
      }
      if (best_error < 0 || error < best_error) {
        best_error = error;
        best = block;
      }
      if (!(vv > 0)) break;
      d = xv / vv;
    }
  }
  return best;
}

// element = d * scale * q - dmin * minimum, q from 0 to kMax, scales and minima from 0 to
// kMaxScale.
template <int kMax, int kSize, int kMaxScale>
SuperBlock<kSize> FitLineSuperBlock(const float* x) {
  using Block = SuperBlock<kSize>;
  std::array<Line, Block::kGroups> wanted;
  float largest_scale = 0, largest_minimum = 0;
  for (int g = 0; g < Block::kGroups; ++g) {
    wanted[g] = FitLine<kMax, kSize>(x + g * kSize, true);
    largest_scale = std::max(largest_scale, wanted[g].scale);
    largest_minimum = std::max(largest_minimum, -wanted[g].minimum);
  }
  Block best;
  float best_error = -1;
  float d = largest_scale / kMaxScale, dmin = largest_minimum / kMaxScale;
  for (int round = 0; round < 4; ++round) {
    Block block;
    block.d = ToFloat16(d);
    block.dmin = ToFloat16(dmin);
    const float stored = ToFloat(block.d), stored_min = ToFloat(block.dmin);
    float error = 0;
    // The normal equations of d and dmin for these codes.
    double vv = 0, vm = 0, mm = 0, xv = 0, xm = 0;
    for (int g = 0; g < Block::kGroups; ++g) {
      const float* group = x + g * kSize;
      const auto nearest = [](float value, float unit) {
        return unit > 0 ? static_cast<int32_t>(
                              std::lround(std::clamp(value / unit, 0.0f, float{kMaxScale})))
                        : 0;
      };
      const int32_t scale = nearest(wanted[g].scale, stored);
      const int32_t minimum = nearest(-wanted[g].minimum, stored_min);
      float group_error = -1;
      std::array<int32_t, kSize> tried;
      for (int32_t s = std::max(scale - 1, 0); s <= std::min(scale + 1, kMaxScale); ++s) {
        for (int32_t m = std::max(minimum - 1, 0); m <= std::min(minimum + 1, kMaxScale); ++m) {
          const float tried_error = ErrorOfLine<kMax, kSize>(
              group, {stored * static_cast<float>(s), -stored_min * static_cast<float>(m)},
              tried.data());
          if (group_error >= 0 && tried_error >= group_error) continue;
          group_error = tried_error;
          block.scales[g] = s;
          block.minima[g] = m;
          std::copy(tried.begin(), tried.end(), block.codes.begin() + g * kSize);
        }
      }
      error += group_error;
      const double m = block.minima[g];
      for (int i = 0; i < kSize; ++i) {
        const double v = static_cast<double>(block.scales[g]) * block.codes[g * kSize + i];
        vv += v * v;
        vm += v * m;
        xv += v * group[i];
        xm += m * group[i];
      }
      mm += kSize * m * m;
    }
    if (best_error < 0 || error < best_error) {
      best_error = error;
      best = block;
    } else if (round > 1) {
      break;
    }
    // d * vv - dmin * vm = xv;  d * vm - dmin * mm = xm
    const double determinant = vv * mm - vm * vm;
    double next_d = vv > 0 ? xv / vv : 0, next_min = 0;
    if (determinant > 1e-12 * vv * mm && determinant > 0) {
      next_d = (xv * mm - xm * vm) / determinant;
      next_min = (xv * vm - xm * vv) / determinant;
    }
    if (!(next_d > 0) || next_min < 0) break;
    d = static_cast<float>(next_d);
    dmin = static_cast<float>(next_min);
  }
  return best;
}

}  // namespace lockstep::fit

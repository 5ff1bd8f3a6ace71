#include "quant/grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

float AsStored(DType type, float scale) {
  if (type == DType::kF16) return ToFloat(ToFloat16(scale));
  if (type == DType::kBF16) return ToFloat(ToBFloat16(scale));
  return scale;
}

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

struct Sums {
  double xq = 0, qq = 0;  // sum w x q, sum w q^2, where q = code - zero
};

// The codes at 1/scale = inverse are q = clamp(round(x * inverse), low, high).
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

// The same, each element counting w[i] times.
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

// The least and the largest of x and 0.
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

// One run, and the grids that were tried on it.
class Search {
 public:
  Search(std::span<const float> x, const GridSpec& spec, std::span<uint8_t> codes,
         std::span<const float> importance)
      : x_(x),
        spec_(spec),
        codes_(codes),
        importance_(importance),
        top_((1 << spec.bits) - 1),
        middle_(1 << (spec.bits - 1)) {
    RangeOf(x.data(), x.size(), &low_, &high_);
  }

  Grid Fit() {
    const Grid nearest = NearestGrid();
    WriteCodes(nearest, codes_);
    if (spec_.search == ScaleSearch::kNearest || nearest.scale == 0 ||
        !std::isfinite(nearest.scale))
      return nearest;
    best_ = nearest;
    best_error_ = GridError(x_, codes_, nearest, importance_);
    if (best_error_ > 0) {
      if (spec_.zeros == ZeroPoints::kNone)
        SearchSymmetric();
      else
        SearchAsymmetric();
    }
    return best_;
  }

 private:
  Grid NearestGrid() const {
    Grid grid{.scale = 0, .zero = middle_};
    if (spec_.zeros == ZeroPoints::kNone) {
      const float extreme = high_ > -low_ ? high_ : low_;
      grid.scale = AsStored(spec_.scale_type, -extreme / static_cast<float>(middle_));
    } else {
      grid.scale = AsStored(spec_.scale_type, (high_ - low_) / static_cast<float>(top_));
      grid.zero = ZeroFor(grid.scale, low_);
    }
    // Weights so small that the scale is no normal number become zeros.
    if (std::abs(grid.scale) < std::numeric_limits<float>::min()) return {0, middle_};
    return grid;
  }

  int ZeroFor(float scale, float low) const {
    if (!(std::abs(scale) >= std::numeric_limits<float>::min())) return middle_;
    return std::clamp(static_cast<int>(std::nearbyint(-low / scale)), 0, top_);
  }

  void WriteCodes(const Grid& grid, std::span<uint8_t> codes) const {
    const float inverse = grid.scale == 0 || !std::isfinite(grid.scale) ? 0.0f : 1.0f / grid.scale;
    CodesAt(x_.data(), x_.size(), inverse, static_cast<float>(-grid.zero),
            static_cast<float>(top_ - grid.zero), static_cast<float>(grid.zero), codes.data());
  }

  Sums SumsOf(float inverse, int zero) const {
    const float low = static_cast<float>(-zero), high = static_cast<float>(top_ - zero);
    return importance_.empty()
               ? SumsAt(x_.data(), x_.size(), inverse, low, high)
               : WeightedSumsAt(x_.data(), importance_.data(), x_.size(), inverse, low, high);
  }

  // The least squares scale of the codes at 1/inverse explains xq^2 / qq of the run's energy.
  void Consider(float inverse, int zero) {
    const Sums sums = SumsOf(inverse, zero);
    if (sums.qq <= 0) return;
    const double explained = sums.xq * sums.xq / sums.qq;
    if (explained <= explained_) return;
    explained_ = explained;
    candidate_ = {.scale = static_cast<float>(sums.xq / sums.qq), .zero = zero};
  }

  // Codes and scale in turn, until neither moves; kept where the stored grid is better.
  void Refine() {
    for (int turn = 0; turn < 4; ++turn) {
      Grid grid = candidate_;
      grid.scale = AsStored(spec_.scale_type, grid.scale);
      if (!std::isfinite(grid.scale) || std::abs(grid.scale) < std::numeric_limits<float>::min())
        return;
      scratch_.resize(x_.size());
      WriteCodes(grid, scratch_);
      const double error = GridError(x_, scratch_, grid, importance_);
      if (error < best_error_) {
        best_error_ = error;
        best_ = grid;
        std::copy(scratch_.begin(), scratch_.end(), codes_.begin());
      }
      const Sums sums = SumsOf(1.0f / grid.scale, grid.zero);
      if (sums.qq <= 0) return;
      const auto scale = static_cast<float>(sums.xq / sums.qq);
      if (scale == candidate_.scale) return;
      candidate_.scale = scale;
    }
  }

  // How far below the extreme a grid may end: the more elements, the rarer the extreme. 8 bits have
  // little to gain.
  float FurthestClip() const {
    if (spec_.bits == 8) return 1.1f;
    return x_.size() <= 64 ? 1.45f : x_.size() <= 512 ? 1.8f : 2.6f;
  }

  // Coarse steps with either sign, then finer ones about the best: within 0.1 % of the error that
  // 400 steps reach on bell-shaped blocks of 32.
  void SearchSymmetric() {
    constexpr int kSteps = 8;
    const float extreme = std::max(high_, -low_);
    const float from = spec_.bits == 8 ? 0.95f : 0.7f, to = FurthestClip();
    const float unit = static_cast<float>(middle_) / extreme, step = (to - from) / kSteps;
    float best = 0;
    const auto consider = [&](float clip) {
      const double before = explained_;
      Consider(clip * unit, middle_);
      if (explained_ > before) best = clip;
    };
    for (int i = 0; i <= kSteps; ++i) {
      consider(from + step * static_cast<float>(i));
      consider(-(from + step * static_cast<float>(i)));
    }
    const float centre = best;
    for (const float part : {-0.6f, -0.4f, -0.2f, 0.2f, 0.4f, 0.6f}) consider(centre + part * step);
    Refine();
  }

  void SearchAsymmetric() {
    const float furthest = FurthestClip();
    for (const float cut_low : {1.0f, 0.75f, 0.5f, 0.25f, 0.0f})
      for (const float cut_high : {1.0f, 0.75f, 0.5f, 0.25f, 0.0f}) {
        // Each end between itself and itself / furthest.
        const float low = low_ / (1 + (furthest - 1) * (1 - cut_low));
        const float high = high_ / (1 + (furthest - 1) * (1 - cut_high));
        const float scale = (high - low) / static_cast<float>(top_);
        if (!(scale >= std::numeric_limits<float>::min())) continue;
        Consider(1.0f / scale, ZeroFor(scale, low));
      }
    for (const int zero : {candidate_.zero - 1, candidate_.zero + 1})
      if (zero >= 0 && zero <= top_ && candidate_.scale != 0)
        for (const float stretch : {0.94f, 1.0f, 1.06f}) Consider(stretch / candidate_.scale, zero);
    Refine();
  }

  std::span<const float> x_;
  const GridSpec& spec_;
  std::span<uint8_t> codes_;
  std::span<const float> importance_;
  int top_, middle_;
  float low_ = 0, high_ = 0;  // of the run and 0
  Grid best_, candidate_;
  double best_error_ = 0, explained_ = 0;
  std::vector<uint8_t> scratch_;
};

}  // namespace

Grid FitGrid(std::span<const float> x, const GridSpec& spec, std::span<uint8_t> codes,
             std::span<const float> importance) {
  return Search(x, spec, codes, importance).Fit();
}

double GridError(std::span<const float> x, std::span<const uint8_t> codes, const Grid& grid,
                 std::span<const float> importance) {
  if (importance.empty())
    return ErrorAt(x.data(), codes.data(), x.size(), grid.scale, static_cast<float>(grid.zero));
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = double{x[i]} - grid.Value(codes[i]);
    sum += d * d * importance[i];
  }
  return sum;
}

}  // namespace lockstep

#include "audit/weight_sums.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

namespace lockstep {

void Sums::Add(std::span<const float> ref, std::span<const float> got) {
  for (size_t i = 0; i < ref.size(); ++i) {
    const double x = ref[i], y = got[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      not_finite_a += std::isfinite(x) ? 0 : 1;
      not_finite_b += std::isfinite(y) ? 0 : 1;
      max_abs = INFINITY;
      bf16 = fp16 = false;
      continue;
    }
    n += 1;
    a += x;
    b += y;
    ab += x * y;
    aa += x * x;
    bb += y * y;
    max_abs = std::max(max_abs, std::abs(x - y));
    largest = std::max(largest, std::abs(x));
    largest_b = std::max(largest_b, std::abs(y));
    bf16 = bf16 && ToFloat(ToBFloat16(ref[i])) == got[i];
    fp16 = fp16 && ToFloat(ToFloat16(ref[i])) == got[i];
  }
}

double Sums::correlation() const {
  const double v = variance_a() * variance_b();
  return v > 0 ? (ab - a * b / n) / std::sqrt(v) : 0;
}

Sums SumsOf(const Rows& ref, const Rows& got) {
  Sums sums;
  for (int64_t r = 0; r < ref.rows; ++r) sums.Add(ref.Row(r), got.Row(r));
  return sums;
}

bool AreSoundCodes(const Sums& sums, int64_t bits) {
  const double least = bits >= 8 ? 0.999 : bits >= 4 ? 0.97 : 0.85;
  const double slack = bits >= 8 ? 0.01 : bits >= 4 ? 0.05 : 0.3;
  if (!(sums.variance_a() > 0) || sums.not_finite_a > 0 || sums.not_finite_b > 0) return false;
  const double slope = (sums.ab - sums.a * sums.b / sums.n) / sums.variance_a();
  const double square = (sums.aa - 2 * sums.ab + sums.bb) / sums.n;
  const double mean = (sums.b - sums.a) / sums.n;
  const double chance = 6 / std::sqrt(sums.n);  // of a mean of so many
  return sums.correlation() >= least && std::abs(slope - 1) <= slack &&
         std::abs(mean) <= (0.25 + chance) * std::sqrt(std::max(0.0, square));
}

bool EveryBlockFollows(const Rows& ref, const Rows& got, int64_t bits, int64_t block) {
  const double steps = 4 / std::pow(2, static_cast<double>(std::max<int64_t>(bits, 2)));
  const auto width = static_cast<size_t>(block > 0 ? block : ref.cols);
  for (int64_t r = 0; r < ref.rows; ++r) {
    const auto x = ref.Row(r), y = got.Row(r);
    for (size_t begin = 0; begin < x.size(); begin += width) {
      const size_t end = std::min(begin + width, x.size());
      double largest = 0, worst = 0;
      for (size_t c = begin; c < end; ++c) {
        largest = std::max(largest, std::abs(double{x[c]}));
        worst = std::max(worst, std::abs(double{x[c]} - double{y[c]}));
      }
      if (!(worst <= steps * largest)) return false;
    }
  }
  return true;
}

bool CodeSides::OneSided() const {
  const int64_t misses = inward + outward;
  return misses >= 16 && misses * 1000 >= codes &&
         static_cast<double>(std::abs(inward - outward)) >= 0.8 * static_cast<double>(misses);
}

CodeSides SidesOf(const Rows& ref, const Rows& got, const Rows& units, int64_t block,
                  double precision) {
  CodeSides out;
  const auto width = static_cast<size_t>(block > 0 ? block : ref.cols);
  for (int64_t r = 0; r < ref.rows; ++r) {
    const auto x = ref.Row(r), y = got.Row(r), k = units.Row(r);
    for (size_t begin = 0; begin < x.size(); begin += width) {
      const size_t end = std::min(begin + width, x.size());
      const auto [least, largest] =
          std::minmax_element(k.begin() + static_cast<std::ptrdiff_t>(begin),
                              k.begin() + static_cast<std::ptrdiff_t>(end));
      for (size_t c = begin; c < end; ++c) {
        if (k[c] == *least || k[c] == *largest || std::abs(k[c]) < 1 || y[c] == 0) continue;
        // x / scale, with the code's sign.
        const double size = std::abs(double{k[c]});
        const double further = double{x[c]} / double{y[c]} * size - size;
        const double half = 0.5 + 1e-3 + size * precision;
        ++out.codes;
        out.inward += further < -half ? 1 : 0;
        out.outward += further > half ? 1 : 0;
      }
    }
  }
  return out;
}

std::optional<double> NearestScale(std::span<const float> numbers, std::span<const float> units) {
  if (units.empty() || numbers.size() != units.size()) return std::nullopt;
  const auto [least, largest] = std::minmax_element(units.begin(), units.end());
  double low = -INFINITY, high = INFINITY;
  const auto between = [&](double a, double b) {
    low = std::max(low, std::min(a, b));
    high = std::min(high, std::max(a, b));
  };
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double k = units[i], x = numbers[i], size = std::abs(k);
    if (size < 1) continue;
    const double unit = x / k;  // the scale, were nothing rounded
    if (units[i] == *least || units[i] == *largest) {
      // Cut off, perhaps: the scale is then smaller than this number asks.
      unit > 0 ? high = std::min(high, unit * size / (size - 0.5))
               : low = std::max(low, unit * size / (size - 0.5));
    } else {
      between(unit * size / (size + 0.5), unit * size / (size - 0.5));
    }
  }
  if (!(low <= high) || !std::isfinite(low) || !std::isfinite(high)) return std::nullopt;
  return (low + high) / 2;
}

bool SampleAgrees(const Rows& ref, const Rows& got, double correlation) {
  if (ref.rows != got.rows || ref.cols != got.cols) return false;
  Sums sums;
  for (const int64_t r : {int64_t{0}, ref.rows / 2, ref.rows - 1}) sums.Add(ref.Row(r), got.Row(r));
  if (sums.largest == 0) return false;
  return correlation < 1 ? sums.correlation() > correlation
                         : sums.max_abs <= kFolded * std::max(1.0, sums.largest);
}

}  // namespace lockstep

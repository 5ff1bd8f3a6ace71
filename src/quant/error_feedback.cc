#include "quant/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "quant/product_loops.h"

namespace lockstep {
namespace {

constexpr size_t kPanel = 64;

void ForAll(ThreadPool* pool, size_t n, const std::function<void(size_t)>& fn) {
  if (pool != nullptr) return pool->For(n, fn);
  for (size_t i = 0; i < n; ++i) fn(i);
}

// The lower triangle of h [n, n] becomes L with h = L L^T, panel by panel. False where h is not
// positive definite.
bool Cholesky(std::vector<double>& h, size_t n, ThreadPool* pool) {
  std::vector<double> turned;  // a panel's rows below it, [width, below]
  for (size_t begin = 0; begin < n; begin += kPanel) {
    const size_t width = std::min(kPanel, n - begin), end = begin + width;
    for (size_t i = begin; i < end; ++i)
      for (size_t j = begin; j <= i; ++j) {
        double sum = h[i * n + j];
        for (size_t p = begin; p < j; ++p) sum -= h[i * n + p] * h[j * n + p];
        if (i != j) {
          h[i * n + j] = sum / h[j * n + j];
          continue;
        }
        if (!(sum > 0) || !std::isfinite(sum)) return false;
        h[i * n + i] = std::sqrt(sum);
      }
    const size_t below = n - end;
    if (below == 0) break;
    turned.resize(width * below);
    ForAll(pool, (below + kPanel - 1) / kPanel, [&](size_t task) {
      for (size_t i = end + task * kPanel; i < std::min(n, end + (task + 1) * kPanel); ++i)
        for (size_t j = begin; j < end; ++j) {
          double sum = h[i * n + j];
          for (size_t p = begin; p < j; ++p) sum -= h[i * n + p] * h[j * n + p];
          h[i * n + j] = sum / h[j * n + j];
          turned[(j - begin) * below + i - end] = -h[i * n + j];
        }
    });
    ForAll(pool, (below + kPanel - 1) / kPanel, [&](size_t task) {
      const size_t first = task * kPanel, rows = std::min(kPanel, below - first);
      products::Add(products::Factor<double>{&h[(end + first) * n + begin], n, 1}, turned.data(),
                    below, width, rows, first + rows, &h[(end + first) * n + end], n);
    });
  }
  return true;
}

int Nearest(float target, const Grid& grid, float inverse, int top) {
  const float code = std::nearbyint(target * inverse) + static_cast<float>(grid.zero);
  return static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(top)));
}

float InverseOf(const Grid& grid) {
  return grid.scale == 0 || !std::isfinite(grid.scale) ? 0.0f : 1.0f / grid.scale;
}

float LargestOf(std::span<const float> x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  return largest;
}

// Rounding alone moves no element further than that.
bool Reaches(std::span<const float> x, const Grid& grid, int top, float furthest) {
  const float inverse = InverseOf(grid);
  return std::ranges::all_of(x, [&](float v) {
    const int code = Nearest(v, grid, inverse, top);
    return std::abs(v - grid.Value(static_cast<uint8_t>(code))) <= furthest;
  });
}

Grid GridOf(std::span<const float> x, std::span<const float> targets, const GridSpec& spec,
            std::span<const float> costs, float furthest, std::span<uint8_t> scratch) {
  const int top = (1 << spec.bits) - 1;
  const auto fits = [&](const Grid& grid) {
    return std::isfinite(grid.scale) && Reaches(x, grid, top, furthest);
  };
  Grid grid = FitGrid(targets, spec, scratch, costs);
  if (fits(grid)) return grid;
  grid = FitGrid(targets, spec, scratch);
  if (fits(grid)) return grid;
  return FitGrid(x, spec, scratch);
}

}  // namespace

std::optional<ErrorFeedback> ErrorFeedback::Of(std::vector<float> moments, int64_t cols,
                                               const FeedbackOptions& options, ThreadPool* pool) {
  const auto n = static_cast<size_t>(cols);
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += moments[i * n + i];
  mean /= static_cast<double>(n);
  if (!(mean > 0) || !std::isfinite(mean)) return std::nullopt;
  // R is the lower factor of the same matrix with rows and columns in reverse order, turned back.
  std::vector<double> h(n * n);
  const double off = (1 - options.shrinkage) / mean;
  for (size_t i = 0; i < n; ++i) {
    h[i * n + i] = moments[(n - 1 - i) * (n + 1)] / mean + options.damping;
    for (size_t j = 0; j < i; ++j) h[i * n + j] = off * moments[(n - 1 - i) * n + n - 1 - j];
  }
  if (!Cholesky(h, n, pool)) return std::nullopt;
  ErrorFeedback out;
  out.cols_ = cols;
  out.costs_.resize(n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    const double diagonal = h[(n - 1 - i) * (n + 1)];
    out.costs_[i] = static_cast<float>(diagonal * diagonal);
    sum += out.costs_[i];
  }
  for (float& cost : out.costs_) cost = static_cast<float>(cost * static_cast<double>(n) / sum);
  out.ratios_ = std::move(moments);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < n; ++i)
      out.ratios_[j * n + i] =
          i <= j ? 0.0f
                 : static_cast<float>(h[(n - 1 - j) * n + n - 1 - i] / h[(n - 1 - i) * (n + 1)]);
  return out;
}

void CodeWithFeedback(std::span<const float> x, size_t count, size_t cols, size_t block,
                      const GridSpec& spec, const ErrorFeedback& feedback, float most,
                      std::span<uint8_t> codes, std::span<Grid> grids) {
  const size_t known = std::min(cols, static_cast<size_t>(feedback.cols()));
  const size_t blocks = (cols + block - 1) / block;
  const int top = (1 << spec.bits) - 1;
  std::vector<float> targets(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count * cols));
  std::vector<float> errors(count * block);
  std::vector<uint8_t> scratch(block);
  for (size_t b = 0; b < blocks; ++b) {
    const size_t begin = b * block, n = std::min(block, cols - begin);
    const size_t fed = begin < known ? std::min(n, known - begin) : 0;
    for (size_t r = 0; r < count; ++r) {
      const auto own = x.subspan(r * cols + begin, n);
      const auto aims = std::span(targets).subspan(r * cols + begin, n);
      const float furthest = most * LargestOf(own);
      const auto costs = fed == n ? feedback.costs().subspan(begin, n) : std::span<const float>();
      const Grid grid = grids[r * blocks + b] =
          GridOf(own, aims, spec, costs, furthest, std::span(scratch).first(n));
      const float inverse = InverseOf(grid);
      for (size_t i = 0; i < n; ++i) {
        int code = Nearest(aims[i], grid, inverse, top);
        const int plain = Nearest(own[i], grid, inverse, top);
        while (code != plain &&
               std::abs(own[i] - grid.Value(static_cast<uint8_t>(code))) > furthest)
          code += code < plain ? 1 : -1;
        codes[r * cols + begin + i] = static_cast<uint8_t>(code);
        const float error = own[i] - grid.Value(static_cast<uint8_t>(code));
        errors[r * block + i] = error;
        if (i >= fed) continue;
        const auto ratios = feedback.row(begin + i).subspan(begin, fed);
        for (size_t k = i + 1; k < fed; ++k) aims[k] += error * ratios[k];
      }
    }
    const size_t end = begin + fed;
    if (fed == 0 || end >= known) continue;
    products::Add(products::Factor<float>{errors.data(), block, 1},
                  feedback.row(begin).data() + end, static_cast<size_t>(feedback.cols()), fed,
                  count, known - end, targets.data() + end, cols);
  }
}

}  // namespace lockstep

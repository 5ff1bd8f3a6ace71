#include "reference/linear.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"

// One function, compiled for several instruction sets, chosen when the program starts. All give the
// same bits: the order of additions is written down below, and this project is built with
// -ffp-contract=off. Sanitizers run before the loader can choose, and clang's spelling differs:
// there, one version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LS_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LS_CLONES
#endif
#define LS_INLINE inline __attribute__((always_inline))

namespace lockstep {
namespace {

// A dot product of n elements keeps one partial sum per lane: lane j adds a[i] * b[i] for i = j, j
// + L, j + 2L, ... in that order; the lanes are then added pairwise, halves first. L is 64 bytes'
// worth of elements on every machine, so the result is the same with SSE2, AVX2 and AVX-512.
template <typename T>
struct Lanes {
  static constexpr size_t kCount = 64 / sizeof(T);
  typedef T Vector __attribute__((vector_size(64)));
  typedef T Unaligned __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));

  static LS_INLINE T Sum(const Vector& v) {
    T lanes[kCount];
    std::memcpy(lanes, &v, sizeof(v));
    for (size_t half = kCount / 2; half > 0; half /= 2)
      for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    return lanes[0];
  }
};

// kRows x kTokens dot products of length n, a multiple of the lane count.
template <typename T, size_t kRows, size_t kTokens>
LS_INLINE void Tile(const T* w, size_t w_stride, const T* x, size_t x_stride, size_t n, T* y,
                    size_t y_stride) {
  using L = Lanes<T>;
  typename L::Vector sum[kRows][kTokens] = {};
  for (size_t i = 0; i < n; i += L::kCount) {
    typename L::Vector xs[kTokens];
    for (size_t t = 0; t < kTokens; ++t)
      xs[t] = *reinterpret_cast<const typename L::Unaligned*>(x + t * x_stride + i);
    for (size_t r = 0; r < kRows; ++r) {
      const typename L::Vector ws =
          *reinterpret_cast<const typename L::Unaligned*>(w + r * w_stride + i);
      for (size_t t = 0; t < kTokens; ++t) sum[r][t] += ws * xs[t];
    }
  }
  for (size_t r = 0; r < kRows; ++r)
    for (size_t t = 0; t < kTokens; ++t) y[t * y_stride + r] = L::Sum(sum[r][t]);
}

// `rows` rows of w against `tokens` rows of x, in tiles of 4 x 4 (16 sums and 8 operands fit
// AVX-512's 32 registers) and whatever is left one by one.
template <typename T>
LS_INLINE void Block(const T* w, size_t rows, size_t w_stride, const T* x, size_t tokens,
                     size_t x_stride, size_t n, T* y, size_t y_stride) {
  size_t t = 0;
  for (; t + 4 <= tokens; t += 4) {
    size_t r = 0;
    for (; r + 4 <= rows; r += 4)
      Tile<T, 4, 4>(w + r * w_stride, w_stride, x + t * x_stride, x_stride, n, y + t * y_stride + r,
                    y_stride);
    for (; r < rows; ++r)
      Tile<T, 1, 4>(w + r * w_stride, w_stride, x + t * x_stride, x_stride, n, y + t * y_stride + r,
                    y_stride);
  }
  for (; t < tokens; ++t) {
    size_t r = 0;
    for (; r + 4 <= rows; r += 4)
      Tile<T, 4, 1>(w + r * w_stride, w_stride, x + t * x_stride, x_stride, n, y + t * y_stride + r,
                    y_stride);
    for (; r < rows; ++r)
      Tile<T, 1, 1>(w + r * w_stride, w_stride, x + t * x_stride, x_stride, n, y + t * y_stride + r,
                    y_stride);
  }
}

LS_CLONES void BlockOf(const float* w, size_t rows, size_t w_stride, const float* x, size_t tokens,
                       size_t x_stride, size_t n, float* y, size_t y_stride) {
  Block(w, rows, w_stride, x, tokens, x_stride, n, y, y_stride);
}
LS_CLONES void BlockOf(const double* w, size_t rows, size_t w_stride, const double* x,
                       size_t tokens, size_t x_stride, size_t n, double* y, size_t y_stride) {
  Block(w, rows, w_stride, x, tokens, x_stride, n, y, y_stride);
}

template <typename T>
LS_INLINE void ScoresOf(const T* query, const T* keys, size_t stride, size_t n, size_t dim,
                        T* scores) {
  using L = Lanes<T>;
  const size_t whole = dim / L::kCount * L::kCount;
  for (size_t i = 0; i < n; ++i) {
    const T* key = keys + i * stride;
    typename L::Vector sum = {};
    for (size_t d = 0; d < whole; d += L::kCount)
      sum += *reinterpret_cast<const typename L::Unaligned*>(query + d) *
             *reinterpret_cast<const typename L::Unaligned*>(key + d);
    for (size_t d = whole; d < dim; ++d) sum[d - whole] += query[d] * key[d];
    scores[i] = L::Sum(sum);
  }
}

template <typename T>
LS_INLINE void WeightedSumOf(const T* weights, const T* values, size_t stride, size_t n, size_t dim,
                             T* out) {
  for (size_t d = 0; d < dim; ++d) out[d] = 0;
  for (size_t i = 0; i < n; ++i) {
    const T weight = weights[i];
    const T* value = values + i * stride;
    for (size_t d = 0; d < dim; ++d) out[d] += weight * value[d];
  }
}

constexpr size_t kRowsPerBlock = 16;  // a cache line of fp32 when W is stored transposed

}  // namespace

LS_CLONES void Scores(const float* query, const float* keys, size_t stride, size_t n, size_t dim,
                      float* scores) {
  ScoresOf(query, keys, stride, n, dim, scores);
}
LS_CLONES void Scores(const double* query, const double* keys, size_t stride, size_t n, size_t dim,
                      double* scores) {
  ScoresOf(query, keys, stride, n, dim, scores);
}
LS_CLONES void WeightedSum(const float* weights, const float* values, size_t stride, size_t n,
                           size_t dim, float* out) {
  WeightedSumOf(weights, values, stride, n, dim, out);
}
LS_CLONES void WeightedSum(const double* weights, const double* values, size_t stride, size_t n,
                           size_t dim, double* out) {
  WeightedSumOf(weights, values, stride, n, dim, out);
}

template <typename T>
void Linear(ThreadPool& pool, const WeightView& weight, const WeightView* bias,
            MatrixView<const T> x, MatrixView<T> y, std::span<const int32_t> which) {
  const auto inputs = static_cast<size_t>(weight.cols);
  const size_t outputs = which.empty() ? static_cast<size_t>(weight.rows) : which.size();
  LS_CHECK(x.cols == inputs && y.cols == outputs && x.rows == y.rows, "{}: {} x {} into {} x {}",
           weight.tensor, x.rows, x.cols, y.rows, y.cols);
  // Rows padded with zeros to whole vectors: adding 0 * 0 changes no sum.
  const size_t n = (inputs + Lanes<T>::kCount - 1) / Lanes<T>::kCount * Lanes<T>::kCount;
  std::vector<T> padded;
  if (n != inputs) {
    padded.assign(x.rows * n, T{0});
    for (size_t t = 0; t < x.rows; ++t) std::ranges::copy(x.row(t), padded.begin() + t * n);
    x = {padded.data(), x.rows, n};
  }
  std::vector<float> b;
  if (bias != nullptr) {
    b.resize(static_cast<size_t>(weight.rows));
    bias->ReadRows(0, 1, b.data(), weight.rows);
    if (!which.empty()) {
      std::vector<float> chosen(which.size());
      for (size_t i = 0; i < which.size(); ++i) chosen[i] = b[static_cast<size_t>(which[i])];
      b = std::move(chosen);
    }
  }
  pool.For((outputs + kRowsPerBlock - 1) / kRowsPerBlock, [&](size_t block) {
    const size_t first = block * kRowsPerBlock, rows = std::min(kRowsPerBlock, outputs - first);
    std::vector<float> w(rows * n);
    if (which.empty())
      weight.ReadRows(static_cast<int64_t>(first), static_cast<int64_t>(rows), w.data(),
                      static_cast<int64_t>(n));
    for (size_t r = 0; r < rows && !which.empty(); ++r)
      weight.ReadRows(which[first + r], 1, w.data() + r * n, static_cast<int64_t>(n));
    const T* wide;
    std::vector<T> converted;
    if constexpr (std::is_same_v<T, float>) {
      wide = w.data();
    } else {
      converted.assign(w.begin(), w.end());
      wide = converted.data();
    }
    BlockOf(wide, rows, n, x.data, x.rows, x.row_stride, n, y.data + first, y.row_stride);
    if (bias != nullptr)
      for (size_t t = 0; t < y.rows; ++t)
        for (size_t r = 0; r < rows; ++r) y(t, first + r) += static_cast<T>(b[first + r]);
  });
}

template void Linear<float>(ThreadPool&, const WeightView&, const WeightView*,
                            MatrixView<const float>, MatrixView<float>, std::span<const int32_t>);
template void Linear<double>(ThreadPool&, const WeightView&, const WeightView*,
                             MatrixView<const double>, MatrixView<double>,
                             std::span<const int32_t>);

}  // namespace lockstep

#include "quant/product_loops.h"

#include <cstring>

namespace lockstep::products {
namespace {

#define LS_INLINE [[gnu::always_inline]] inline

template <typename T>
struct Lanes {
  static constexpr size_t kCount = 32 / sizeof(T);
  using Vector [[gnu::vector_size(32)]] = T;
};

// 4 rows times 2 vectors: 8 sums, as many as hide the latency of an addition (4) at two a cycle.
constexpr size_t kRows = 4, kVectors = 2;

template <typename T, size_t kR>
LS_INLINE void Tile(Factor<T> a, const T* b, size_t b_stride, size_t n, T* c, size_t c_stride) {
  using Vector = typename Lanes<T>::Vector;
  constexpr size_t kLanes = Lanes<T>::kCount;
  Vector sums[kR][kVectors] = {};
  for (size_t j = 0; j < n; ++j) {
    Vector right[kVectors];
    std::memcpy(&right, b + j * b_stride, sizeof right);
    for (size_t r = 0; r < kR; ++r) {
      const Vector left = Vector{} + a.data[r * a.row_step + j * a.col_step];
      for (size_t v = 0; v < kVectors; ++v) sums[r][v] += left * right[v];
    }
  }
  for (size_t r = 0; r < kR; ++r)
    for (size_t v = 0; v < kVectors; ++v) {
      Vector old;
      T* to = c + r * c_stride + v * kLanes;
      std::memcpy(&old, to, sizeof old);
      old += sums[r][v];
      std::memcpy(to, &old, sizeof old);
    }
}

template <typename T>
LS_INLINE void AddAll(Factor<T> a, const T* b, size_t b_stride, size_t n, size_t rows, size_t cols,
                      T* c, size_t c_stride) {
  constexpr size_t kWidth = kVectors * Lanes<T>::kCount;
  size_t i = 0;
  for (; i + kWidth <= cols; i += kWidth) {
    size_t r = 0;
    for (; r + kRows <= rows; r += kRows)
      Tile<T, kRows>({a.data + r * a.row_step, a.row_step, a.col_step}, b + i, b_stride, n,
                     c + r * c_stride + i, c_stride);
    for (; r < rows; ++r)
      Tile<T, 1>({a.data + r * a.row_step, a.row_step, a.col_step}, b + i, b_stride, n,
                 c + r * c_stride + i, c_stride);
  }
  for (; i < cols; ++i)
    for (size_t r = 0; r < rows; ++r) {
      T sum = 0;
      for (size_t j = 0; j < n; ++j)
        sum += a.data[r * a.row_step + j * a.col_step] * b[j * b_stride + i];
      c[r * c_stride + i] += sum;
    }
}

// As in grid_loops.cc: the machine chooses, the bits are the same.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define LS_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LS_CLONES
#endif

}  // namespace

LS_CLONES void Add(Factor<float> a, const float* b, size_t b_stride, size_t n, size_t rows,
                   size_t cols, float* c, size_t c_stride) {
  AddAll(a, b, b_stride, n, rows, cols, c, c_stride);
}
LS_CLONES void Add(Factor<double> a, const double* b, size_t b_stride, size_t n, size_t rows,
                   size_t cols, double* c, size_t c_stride) {
  AddAll(a, b, b_stride, n, rows, cols, c, c_stride);
}

}  // namespace lockstep::products

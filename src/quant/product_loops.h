// c += a b, where error_feedback.cc spends its time: each element one sum in the order of j, so
// that the bits depend neither on the machine nor on the number of threads.
#pragma once

#include <cstddef>

namespace lockstep::products {

// Element (r, j) of a: a[r * row_step + j * col_step].
template <typename T>
struct Factor {
  const T* data;
  size_t row_step, col_step;
};

// c[r * c_stride + i] += sum over j < n of a(r, j) * b[j * b_stride + i], for r < rows, i < cols.
void Add(Factor<float> a, const float* b, size_t b_stride, size_t n, size_t rows, size_t cols,
         float* c, size_t c_stride);
void Add(Factor<double> a, const double* b, size_t b_stride, size_t n, size_t rows, size_t cols,
         double* c, size_t c_stride);

}  // namespace lockstep::products

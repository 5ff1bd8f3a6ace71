// MatrixView: rows and columns of somebody else's memory. Never owns; bounds are checked in debug
// builds.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>

namespace lockstep {

template <typename T>
struct MatrixView {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t row_stride = 0;  // in elements

  MatrixView() = default;
  MatrixView(T* data, size_t rows, size_t cols) : MatrixView(data, rows, cols, cols) {}
  MatrixView(T* data, size_t rows, size_t cols, size_t row_stride)
      : data(data), rows(rows), cols(cols), row_stride(row_stride) {}

  std::span<T> row(size_t r) const {
    assert(r < rows);
    return {data + r * row_stride, cols};
  }
  T& operator()(size_t r, size_t c) const {
    assert(r < rows && c < cols);
    return data[r * row_stride + c];
  }
  // Rows [first, first + count).
  MatrixView block(size_t first, size_t count) const {
    assert(first + count <= rows);
    return {data + first * row_stride, count, cols, row_stride};
  }
  operator MatrixView<const T>() const { return {data, rows, cols, row_stride}; }
};

}  // namespace lockstep

// RowSource: a matrix of floats that is read row by row, wherever it comes from (a WeightView, a
// vector, two matrices interleaved). Quantizers read it so that no model exists in float at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

class ErrorFeedback;

struct RowSource {
  int64_t rows = 0, cols = 0;
  // Rows [first, first + count) to out[i * cols + c]. Called from several threads at once.
  std::function<void(int64_t first, int64_t count, float* out)> read;
  // How errors are made good when its codes are chosen (error_feedback.h); nullptr: not at all. Not
  // owned.
  const ErrorFeedback* feedback = nullptr;
};

// Of values that outlive it, [rows, cols].
inline RowSource RowsOf(std::span<const float> values, int64_t rows, int64_t cols) {
  return {.rows = rows,
          .cols = cols,
          .read =
              [values, cols](int64_t first, int64_t count, float* out) {
                std::copy_n(values.begin() + first * cols, count * cols, out);
              },
          .feedback = nullptr};
}

// Rows gate0, up0, gate1, up1, ...: FC1 of an expert with swiglu. Both have the same shape.
inline RowSource Interleaved(RowSource gate, RowSource up) {
  RowSource both{.rows = 2 * gate.rows, .cols = gate.cols, .read = {}, .feedback = gate.feedback};
  both.read = [gate = std::move(gate), up = std::move(up)](int64_t first, int64_t count,
                                                           float* out) {
    for (int64_t i = 0; i < count; ++i)
      ((first + i) % 2 == 0 ? gate : up).read((first + i) / 2, 1, out + i * gate.cols);
  };
  return both;
}

// The same with zeros below and to the right, up to [rows, cols].
inline RowSource Padded(RowSource inner, int64_t rows, int64_t cols) {
  RowSource outer{.rows = rows, .cols = cols, .read = {}, .feedback = inner.feedback};
  outer.read = [inner = std::move(inner), cols](int64_t first, int64_t count, float* out) {
    std::fill_n(out, count * cols, 0.0f);
    for (int64_t r = first; r < std::min(first + count, inner.rows); ++r)
      inner.read(r, 1, out + (r - first) * cols);
  };
  return outer;
}

}  // namespace lockstep

// WeightView: one weight of a model as a matrix [outputs, inputs] (or a vector, one row), wherever
// and however the checkpoint stores it. Made by the binding (model/bind.cc); read row by row and
// converted as it is used, so that a model never exists in memory in a wider type than its file
// has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "quant/tensor_type.h"

namespace lockstep {

struct WeightView {
  std::string tensor;  // its name in the checkpoint, for messages
  const TensorType* type = nullptr;
  const std::byte* data =
      nullptr;  // element (0, 0) of the stored tensor; kept alive by the Checkpoint
  int64_t rows = 0;
  int64_t cols = 0;
  // Element (r, c) is stored element offset + r' * row_stride + c * col_stride, with r' = r, or,
  // when pair_dim is not 0, the row that llama.cpp's pair order moved r to within its head of
  // pair_dim rows. Block formats have col_stride 1 and rows that begin on a block.
  int64_t offset = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int64_t pair_dim = 0;
  double addend = 0;  // added to each element (GGUF's folded norm offset, undone)

  // Rows [first, first + count) as floats: out[i * out_stride + c], as TensorType::dequantize gives
  // them (F64 is rounded to float), plus `addend`.
  void ReadRows(int64_t first, int64_t count, float* out, int64_t out_stride) const;
  // Where row `row` is stored. Only for col_stride 1.
  const std::byte* RowBytes(int64_t row) const;
  int64_t elements() const { return rows * cols; }
};

}  // namespace lockstep

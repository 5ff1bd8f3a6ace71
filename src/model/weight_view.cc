#include "model/weight_view.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/slot_place.h"

namespace lockstep {

const std::byte* WeightView::RowBytes(int64_t row) const {
  if (pair_dim != 0 && rows > 1) row = StoredRow(row, pair_dim);
  return data + (offset + row * row_stride) / type->block_elements * type->block_bytes;
}

void WeightView::ReadRows(int64_t first, int64_t count, float* out, int64_t out_stride) const {
  LS_CHECK(first >= 0 && count >= 0 && first + count <= rows, "{}: rows {}+{} of {}", tensor, first,
           count, rows);
  const int64_t block_bytes = type->block_bytes;
  if (col_stride != 1) {
    // Transposed or interleaved, always a plain type: walk along the stored rows so that neighbours
    // in memory are read together.
    for (int64_t c = 0; c < cols; ++c) {
      const std::byte* source = data + (offset + first * row_stride + c * col_stride) * block_bytes;
      if (row_stride == 1 && count > 1) {
        float column[64];
        for (int64_t i = 0; i < count; i += 64) {
          const int64_t n = std::min<int64_t>(64, count - i);
          type->dequantize(source + i * block_bytes, n, column);
          for (int64_t k = 0; k < n; ++k) out[(i + k) * out_stride + c] = column[k];
        }
      } else {
        for (int64_t i = 0; i < count; ++i)
          type->dequantize(source + i * row_stride * block_bytes, 1, out + i * out_stride + c);
      }
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      type->dequantize(RowBytes(first + i), cols, out + i * out_stride);
    }
  }
  if (pair_dim != 0 && rows == 1) {  // a bias: its outputs lie along the one row
    const std::vector<float> stored(out, out + cols);
    for (int64_t c = 0; c < cols; ++c) out[c] = stored[static_cast<size_t>(StoredRow(c, pair_dim))];
  }
  if (addend != 0) {
    const auto a = static_cast<float>(addend);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < cols; ++c) out[i * out_stride + c] += a;
  }
}

}  // namespace lockstep

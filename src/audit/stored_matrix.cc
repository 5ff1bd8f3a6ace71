#include "audit/stored_matrix.h"

#include <algorithm>

namespace lockstep {
namespace {

// Codes of up to 8 bits, from bit `at` on; 0 past the end.
int CodeAt(std::span<const std::byte> bytes, int64_t at, int bits) {
  const auto byte = static_cast<size_t>(at / 8);
  if (byte >= bytes.size()) return 0;
  int both = std::to_integer<int>(bytes[byte]);
  if (byte + 1 < bytes.size()) both |= std::to_integer<int>(bytes[byte + 1]) << 8;
  return both >> (at % 8) & ((1 << bits) - 1);
}

std::span<const std::byte> BytesOf(const Graph& graph, int tensor) {
  return graph.model().tensors()[static_cast<size_t>(tensor)].bytes;
}

void ReadCodes(const Graph& graph, const StoredMatrix& matrix, int64_t row, float* out) {
  const BlockCodes& codes = *matrix.codes;
  const int64_t stored = matrix.first_row + row * matrix.row_step;
  const std::vector<float> scales = codes.unit_scales
                                        ? std::vector<float>(static_cast<size_t>(codes.blocks), 1)
                                        : matrix.ScalesOf(graph, row);
  std::vector<float> zeros(static_cast<size_t>(codes.blocks), codes.zero);
  if (codes.zeros >= 0 && !codes.zeros_packed) {
    graph.Read(codes.zeros, stored * codes.blocks, 1, codes.blocks, zeros.data());
  } else if (codes.zeros >= 0) {
    const auto packed = BytesOf(graph, codes.zeros);
    for (int64_t b = 0; b < codes.blocks; ++b)
      zeros[static_cast<size_t>(b)] = static_cast<float>(
          CodeValue(CodeAt(packed, ZeroBitOf(matrix, row, b), codes.bits), codes));
  }
  const auto bytes = BytesOf(graph, matrix.values.tensor);
  for (int64_t c = 0; c < matrix.cols; ++c) {
    const int64_t at = stored * codes.row_bits + c * codes.column_step * codes.bits;
    const int code = CodeValue(CodeAt(bytes, at, codes.bits), codes);
    const auto b = static_cast<size_t>(std::min(c / codes.block, codes.blocks - 1));
    out[c] = (static_cast<float>(code) - zeros[b]) * scales[b];
  }
}

}  // namespace

int CodeValue(int code, const BlockCodes& codes) {
  return codes.is_signed && code >= 1 << (codes.bits - 1) ? code - (1 << codes.bits) : code;
}

int64_t ZeroBitOf(const StoredMatrix& matrix, int64_t row, int64_t block) {
  const BlockCodes& codes = *matrix.codes;
  const int64_t stored = matrix.first_row + row * matrix.row_step;
  if (codes.zeros_as_scales)
    return (stored * codes.ScaleRow() + block * codes.scale_step) * codes.bits;
  if (!codes.zeros_along_rows)
    return stored * ((codes.blocks * codes.bits + 7) / 8) * 8 + block * codes.bits;
  const int64_t per_expert = std::max<int64_t>(matrix.expert_rows, 1);
  return stored / per_expert * ((per_expert * codes.bits + 7) / 8) * 8 +
         stored % per_expert * codes.bits;
}

std::vector<float> StoredMatrix::ScalesOf(const Graph& graph, int64_t row) const {
  std::vector<float> scales(static_cast<size_t>(codes->blocks));
  graph.Read(codes->scales, (first_row + row * row_step) * codes->ScaleRow(), codes->scale_step,
             codes->blocks, scales.data());
  return scales;
}

void StoredMatrix::ReadRow(const Graph& graph, int64_t row, float* out) const {
  if (codes) {
    ReadCodes(graph, *this, row, out);
    return;
  }
  graph.Read(values.tensor, values.offset + row * values.strides[0], values.strides[1], cols, out);
  if (values.factor != 1 || values.addend != 0)
    for (int64_t c = 0; c < cols; ++c) out[c] = out[c] * values.factor + values.addend;
}

std::vector<float> StoredMatrix::ReadAll(const Graph& graph) const {
  std::vector<float> all(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) ReadRow(graph, r, all.data() + r * cols);
  return all;
}

StoredMatrix StoredMatrix::Rows(int64_t first, int64_t count, int64_t step) const {
  StoredMatrix part = *this;
  part.rows = count;
  if (codes) {
    part.first_row += first * row_step;
    part.row_step *= step;
  } else {
    part.values.offset += first * values.strides[0];
    part.values.strides[0] *= step;
    part.values.shape[0] = count;
  }
  return part;
}

}  // namespace lockstep

// StoredMatrix: a matrix of weights as an ONNX graph keeps it, [outputs, inputs], plain or as codes
// of a block quantization (MatMulNBits, QMoE, GatherBlockQuantized, DequantizeLinear), read row by
// row as floats.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "audit/graph.h"

namespace lockstep {

// w = (code - zero) * scale. Codes of a row lie bit after bit, low bits first; where a graph keeps
// [inputs, outputs], `column_step` codes apart.
struct BlockCodes {
  int bits = 4;
  int64_t block = 32;       // columns that share a scale; the last block may be short
  int64_t row_bits = 0;     // from one row's first code to the next row's
  int64_t column_step = 1;  // from one code of a row to the next, in codes
  int64_t blocks = 1;       // scales of a row
  // From one row's first scale to the next row's (absent: `blocks`; 0: all rows have one), and from
  // one block's to the next one's.
  std::optional<int64_t> scale_row;
  int64_t scale_step = 1;
  int scales = -1;                // tensor [.., rows, blocks]
  int zeros = -1;                 // tensor, or -1: `zero` everywhere
  bool zeros_packed = true;       // as codes are, each row from a byte on; else one number a block
  bool zeros_along_rows = false;  // packed along the rows (QMoE with one scale a row)
  bool zeros_as_scales = false;   // packed in the order of the scales (DequantizeLinear)
  float zero = 8;
  bool is_signed = false;    // codes are two's complement
  bool unit_scales = false;  // read as if every scale were 1
  int64_t ScaleRow() const { return scale_row.value_or(blocks); }
};

struct StoredMatrix {
  int64_t rows = 0, cols = 0;
  ConstantView values;  // of a plain matrix: shape [rows, cols]; of codes: only the tensor counts
  std::optional<BlockCodes> codes;
  int64_t first_row = 0;    // of codes: the stored row of row 0,
  int64_t row_step = 1;     // and from one row to the next
  int64_t expert_rows = 0;  // of codes whose zeros are packed along the rows: rows of an expert

  // The scales of a row's blocks.
  std::vector<float> ScalesOf(const Graph& graph, int64_t row) const;
  void ReadRow(const Graph& graph, int64_t row, float* out) const;  // cols floats
  std::vector<float> ReadAll(const Graph& graph) const;
  // Rows first, first + step, ...
  StoredMatrix Rows(int64_t first, int64_t count, int64_t step = 1) const;
};

// A code, or a zero point that is kept as codes are, as the number it stands for.
int CodeValue(int code, const BlockCodes& codes);

// Where the zero point of a row's block lies among packed ones, in bits.
int64_t ZeroBitOf(const StoredMatrix& matrix, int64_t row, int64_t block);

}  // namespace lockstep

// StoredMatrix: a matrix of weights as an ONNX graph keeps it, [outputs, inputs], plain or as codes
// of a block quantization (MatMulNBits, QMoE, GatherBlockQuantized), read row by row as floats.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "audit/graph.h"

namespace lockstep {

// w = (code - zero) * scale. Codes of a row lie bit after bit, low bits first.
struct BlockCodes {
  int bits = 4;
  int64_t block = 32;             // columns that share a scale; the last block may be short
  int64_t row_bits = 0;           // from one row's first code to the next row's
  int64_t blocks = 1;             // scales of a row
  int scales = -1;                // tensor [.., rows, blocks]
  int zeros = -1;                 // tensor, or -1: `zero` everywhere
  bool zeros_packed = true;       // as codes are, each row from a byte on; else one number a block
  bool zeros_along_rows = false;  // packed along the rows (QMoE with one scale a row)
  float zero = 8;
  bool is_signed = false;    // codes are two's complement
  bool unit_scales = false;  // read as if every scale were 1
};

struct StoredMatrix {
  int64_t rows = 0, cols = 0;
  ConstantView values;  // of a plain matrix: shape [rows, cols]; of codes: only the tensor counts
  std::optional<BlockCodes> codes;
  int64_t first_row = 0;    // of codes: the stored row of row 0,
  int64_t row_step = 1;     // and from one row to the next
  int64_t expert_rows = 0;  // of codes whose zeros are packed along the rows: rows of an expert

  void ReadRow(const Graph& graph, int64_t row, float* out) const;  // cols floats
  std::vector<float> ReadAll(const Graph& graph) const;
  // Rows first, first + step, ...
  StoredMatrix Rows(int64_t first, int64_t count, int64_t step = 1) const;
};

// Where the zero point of a row's block lies among packed ones, in bits.
int64_t ZeroBitOf(const StoredMatrix& matrix, int64_t row, int64_t block);

}  // namespace lockstep

// What the packers of onnx_formats.h share: every run of every row on its grid, on all threads.
// Inside this folder only.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "quant/onnx_formats.h"

namespace lockstep {

inline int64_t BlockOf(const CodeRecipe& recipe, int64_t cols) {
  return recipe.block > 0 ? recipe.block : cols;
}
inline int64_t BlocksOf(const CodeRecipe& recipe, int64_t cols) {
  const int64_t block = BlockOf(recipe, cols);
  return (cols + block - 1) / block;
}

// What QuantizeRows hands over, row by row, from several threads at once.
struct CodedRow {
  int64_t row = 0;
  std::span<const uint8_t> codes;  // [cols]
  std::span<const Grid> grids;     // [blocks]
};

struct CodingError {
  double squared_error = 0, squared_norm = 0;
};

// Refuses NaN and infinities, scales that their type cannot hold, and what CheckRecipe refuses.
Result<CodingError> QuantizeRows(const RowSource& source, const CodeRecipe& recipe,
                                 ThreadPool* pool,
                                 const std::function<void(const CodedRow&)>& sink);

// One matrix: codes of `codes_shape`, each row's padded with its zero to whole bytes and to
// `stored` codes; scales [rows, blocks]; zero points, if codes, [rows, ceil(blocks*bits/8)].
Result<PackedWeight> PackByRows(const RowSource& source, const CodeRecipe& recipe,
                                std::vector<int64_t> codes_shape, int64_t stored, ThreadPool* pool);

// Bits, scale type and sizes that every format refuses.
Status CheckRecipe(const CodeRecipe& recipe, int64_t rows, int64_t cols);
// A power of two from 16 on.
Status CheckBlock(const CodeRecipe& recipe);

// n scales as a part: stores scale i.
PackedPart ScalesPart(DType type, std::vector<int64_t> shape);
void StoreScale(PackedPart& scales, int64_t i, float scale);
float LoadScale(const PackedPart& scales, int64_t i);
PackedPart BytesPart(std::vector<int64_t> shape);
uint8_t* BytesIn(PackedPart& part);
const uint8_t* BytesIn(const PackedPart& part);

}  // namespace lockstep

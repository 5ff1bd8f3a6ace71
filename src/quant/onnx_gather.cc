// GatherBlockQuantized with uint8 data: rows of an embedding in blocks.
//
//   codes        [rows, cols*bits/8] uint8; the first code of a byte in its low bits
//   scales       [rows, ceil(cols / block)]
//   zero_points  [rows, ceil(blocks*bits/8)] uint8; absent: 2^(bits-1)
//
// Where the blocks divide a row these are the bytes of MatMulNBits: a tied head shares them.
#include "quant/code_bits.h"
#include "quant/coded_rows.h"

namespace lockstep {

Status CheckGather(const CodeRecipe& recipe, int64_t rows, int64_t cols) {
  LS_RETURN_IF_ERROR(CheckRecipe(recipe, rows, cols));
  if (recipe.bits != 2 && recipe.bits != 4 && recipe.bits != 8)
    return UnsupportedError("GatherBlockQuantized reads codes of 2, 4 and 8 bits, not of {}",
                            recipe.bits);
  if (recipe.scale_type == DType::kBF16)
    return UnsupportedError("GatherBlockQuantized reads scales of F32 and F16, not of BF16");
  if (cols * recipe.bits % 8 != 0)
    return UnsupportedError(
        "rows of {} codes of {} bits do not fill bytes, and "
        "GatherBlockQuantized has no shape for that",
        cols, recipe.bits);
  return CheckBlock(recipe);
}

bool CanShareWithGather(const CodeRecipe& recipe, int64_t cols) {
  return recipe.block > 0 && cols % recipe.block == 0 && recipe.scale_type != DType::kBF16;
}

Result<PackedWeight> PackGather(std::span<const RowSource> matrices, const CodeRecipe& recipe,
                                ThreadPool* pool) {
  if (matrices.size() != 1)
    return UsageError("GatherBlockQuantized holds one matrix, not {}", matrices.size());
  const RowSource& source = matrices[0];
  LS_RETURN_IF_ERROR(CheckGather(recipe, source.rows, source.cols));
  return PackByRows(source, recipe, {source.rows, PackedBytes(source.cols, recipe.bits)},
                    source.cols, pool);
}

}  // namespace lockstep

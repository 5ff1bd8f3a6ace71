// MatMulNBits: [N, K] in blocks along K.
//
//   codes        [N, blocks, block*bits/8] uint8, blocks = ceil(K / block); the first code of a
//   byte
//                in its low bits; the last block is stored whole, and what lies past K is its zero
//   scales       [N, blocks]
//   zero_points  [N, ceil(blocks*bits/8)] uint8, packed like codes; absent: 2^(bits-1)
#include "quant/code_bits.h"
#include "quant/coded_rows.h"

namespace lockstep {

Status CheckMatMulNBits(const CodeRecipe& recipe, int64_t rows, int64_t cols) {
  LS_RETURN_IF_ERROR(CheckRecipe(recipe, rows, cols));
  if (recipe.bits != 2 && recipe.bits != 4 && recipe.bits != 8)
    return UnsupportedError("MatMulNBits runs codes of 2, 4 and 8 bits on the CPU, not of {}",
                            recipe.bits);
  if (recipe.block > 256)
    return UnsupportedError("MatMulNBits is proved up to blocks of 256, not for {}", recipe.block);
  return CheckBlock(recipe);
}

Result<PackedWeight> PackMatMulNBits(std::span<const RowSource> matrices, const CodeRecipe& recipe,
                                     ThreadPool* pool) {
  if (matrices.size() != 1)
    return UsageError("MatMulNBits holds one matrix, not {}", matrices.size());
  const RowSource& source = matrices[0];
  LS_RETURN_IF_ERROR(CheckMatMulNBits(recipe, source.rows, source.cols));
  const int64_t blocks = BlocksOf(recipe, source.cols);
  return PackByRows(source, recipe, {source.rows, blocks, PackedBytes(recipe.block, recipe.bits)},
                    blocks * recipe.block, pool);
}

}  // namespace lockstep

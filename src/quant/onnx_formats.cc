#include "quant/onnx_formats.h"

#include <algorithm>

#include "quant/code_bits.h"
#include "quant/coded_rows.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

// (code - zero) * scale with the codes of a row that code(i) gives.
template <typename Code>
void UnpackRow(const PackedWeight& weight, const CodeRecipe& recipe, int64_t cols,
               int64_t scale_row, const uint8_t* zeros, int64_t first_zero, Code code, float* out) {
  const int64_t block = BlockOf(recipe, cols), blocks = BlocksOf(recipe, cols);
  for (int64_t b = 0; b < blocks; ++b) {
    const Grid grid{.scale = LoadScale(weight.scales, scale_row * blocks + b),
                    .zero = zeros != nullptr ? CodeAt(zeros, first_zero + b, recipe.bits)
                                             : 1 << (recipe.bits - 1)};
    for (int64_t i = b * block; i < std::min(cols, (b + 1) * block); ++i)
      out[i] = grid.Value(code(i));
  }
}

const uint8_t* ZerosOf(const PackedWeight& weight, int64_t offset) {
  return weight.zero_points ? BytesIn(*weight.zero_points) + offset : nullptr;
}

// MatMulNBits and GatherBlockQuantized: rows of codes, then rows of zeros.
void UnpackMatrix(const PackedWeight& weight, const CodeRecipe& recipe, int64_t, int64_t rows,
                  int64_t cols, int64_t row, float* out) {
  const auto row_bytes = static_cast<int64_t>(weight.codes.bytes.size()) / rows;
  const uint8_t* codes = BytesIn(weight.codes) + row * row_bytes;
  const int64_t zero_bytes = PackedBytes(BlocksOf(recipe, cols), recipe.bits);
  UnpackRow(
      weight, recipe, cols, row, ZerosOf(weight, row * zero_bytes), 0,
      [&](int64_t i) { return CodeAt(codes, i, recipe.bits); }, out);
}

void UnpackQMoe(const PackedWeight& weight, const CodeRecipe& recipe, int64_t matrix, int64_t rows,
                int64_t cols, int64_t row, float* out) {
  const uint8_t* codes =
      BytesIn(weight.codes) + (matrix * rows + row) * PackedBytes(cols, recipe.bits);
  const bool per_channel = recipe.block == 0;
  const int64_t zero_at =
      per_channel ? matrix * PackedBytes(rows, recipe.bits)
                  : (matrix * rows + row) * PackedBytes(BlocksOf(recipe, cols), recipe.bits);
  UnpackRow(
      weight, recipe, cols, matrix * rows + row, ZerosOf(weight, zero_at), per_channel ? row : 0,
      [&](int64_t i) { return CodeAt(codes, i, recipe.bits); }, out);
}

// Untiles the whole matrix for a row: for checks, not for speed.
void UnpackQMoeTiled(const PackedWeight& weight, const CodeRecipe& recipe, int64_t matrix,
                     int64_t rows, int64_t cols, int64_t row, float* out) {
  const int64_t row_bytes = PackedBytes(cols, recipe.bits);
  std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
  UnpackSm80Tiles(
      {BytesIn(weight.codes) + matrix * rows * row_bytes, static_cast<size_t>(rows * row_bytes)},
      rows, cols, recipe.bits, codes);
  const bool per_channel = recipe.block == 0;
  const int64_t zero_at =
      per_channel ? matrix * PackedBytes(rows, recipe.bits)
                  : (matrix * rows + row) * PackedBytes(BlocksOf(recipe, cols), recipe.bits);
  UnpackRow(
      weight, recipe, cols, matrix * rows + row, ZerosOf(weight, zero_at), per_channel ? row : 0,
      [&](int64_t i) { return codes[static_cast<size_t>(row * cols + i)]; }, out);
}

// clang-format off
constexpr OnnxFormat kFormats[] = {
    {"gather_block_quantized", "GatherBlockQuantized", "rows of an embedding in blocks",            CheckGather,      PackGather,      UnpackMatrix},
    {"matmul_nbits",           "MatMulNBits",          "a matrix in blocks along its inputs",       CheckMatMulNBits, PackMatMulNBits, UnpackMatrix},
    {"qmoe",                   "QMoE",                 "experts, codes row by row",                 CheckQMoeRaw,     PackQMoeRaw,     UnpackQMoe},
    {"qmoe_sm80",              "QMoE",                 "experts, codes in SM80 tiles (weights_prepacked=1)", CheckQMoeTiled, PackQMoeTiled, UnpackQMoeTiled},
};
// clang-format on

}  // namespace

std::span<const OnnxFormat> OnnxFormats() { return kFormats; }

const OnnxFormat* FindOnnxFormat(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFormats), std::end(kFormats),
                                [&](const OnnxFormat& format) { return format.name == name; });
  return it == std::end(kFormats) ? nullptr : it;
}

}  // namespace lockstep

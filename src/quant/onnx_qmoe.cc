// QMoE: one of FC1, FC2 of every expert, [N, K] each.
//
//   codes        [E, N, K*bits/8] uint8, the first code in the low bits (3 bits: one stream a row);
//                tiled: the same bytes of each expert in the order of sm80_tiles.h
//   scales       per channel [E, N] (never [E, N, 1]: ONNX Runtime 1.32 then reads zero points
//                wrong), block-wise [E, N, K / block]
//   zero_points  per channel [E, ceil(N*bits/8)], packed along N; block-wise
//                [E, N, ceil(blocks*bits/8)]; absent: 2^(bits-1)
#include "quant/code_bits.h"
#include "quant/coded_rows.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

Result<PackedWeight> Pack(std::span<const RowSource> experts, const CodeRecipe& recipe, bool tiled,
                          ThreadPool* pool) {
  if (experts.empty()) return UsageError("QMoE holds the matrices of at least one expert");
  const int64_t e_count = static_cast<int64_t>(experts.size());
  const int64_t rows = experts[0].rows, cols = experts[0].cols;
  for (const RowSource& expert : experts)
    if (expert.rows != rows || expert.cols != cols)
      return UsageError("the experts' matrices are [{}, {}] and [{}, {}], but QMoE holds one shape",
                        rows, cols, expert.rows, expert.cols);
  LS_RETURN_IF_ERROR(tiled ? CheckQMoeTiled(recipe, rows, cols) : CheckQMoeRaw(recipe, rows, cols));
  const bool per_channel = recipe.block == 0;
  const int64_t blocks = BlocksOf(recipe, cols);
  const int64_t row_bytes = PackedBytes(cols, recipe.bits);
  const int64_t zero_bytes = PackedBytes(per_channel ? rows : blocks, recipe.bits);
  PackedWeight weight{
      .codes = BytesPart({e_count, rows, row_bytes}), .scales = {}, .zero_points = {}};
  weight.scales = per_channel ? ScalesPart(recipe.scale_type, {e_count, rows})
                              : ScalesPart(recipe.scale_type, {e_count, rows, blocks});
  if (recipe.zeros == ZeroPoints::kCodes)
    weight.zero_points =
        per_channel ? BytesPart({e_count, zero_bytes}) : BytesPart({e_count, rows, zero_bytes});
  std::vector<uint8_t> codes, zeros;  // of one expert, one a byte
  for (int64_t e = 0; e < e_count; ++e) {
    if (tiled) codes.assign(static_cast<size_t>(rows * cols), 0);
    if (weight.zero_points) zeros.assign(static_cast<size_t>(rows * blocks), 0);
    auto error =
        QuantizeRows(experts[static_cast<size_t>(e)], recipe, pool, [&](const CodedRow& row) {
          if (tiled)
            std::copy(row.codes.begin(), row.codes.end(), codes.begin() + row.row * cols);
          else
            PackCodes(row.codes, recipe.bits,
                      BytesIn(weight.codes) + (e * rows + row.row) * row_bytes);
          for (int64_t b = 0; b < blocks; ++b) {
            const Grid& grid = row.grids[static_cast<size_t>(b)];
            StoreScale(weight.scales, (e * rows + row.row) * blocks + b, grid.scale);
            if (weight.zero_points)
              zeros[static_cast<size_t>(row.row * blocks + b)] = static_cast<uint8_t>(grid.zero);
          }
        });
    if (!error) return tl::unexpected(std::move(error).error().In(fmt::format("expert {}", e)));
    weight.squared_error += error->squared_error;
    weight.squared_norm += error->squared_norm;
    if (tiled)
      PackSm80Tiles(codes, rows, cols, recipe.bits, BytesIn(weight.codes) + e * rows * row_bytes);
    if (!weight.zero_points) continue;
    uint8_t* to = BytesIn(*weight.zero_points);
    if (per_channel)
      PackCodes(zeros, recipe.bits, to + e * zero_bytes);
    else
      for (int64_t r = 0; r < rows; ++r)
        PackCodes(
            std::span(zeros).subspan(static_cast<size_t>(r * blocks), static_cast<size_t>(blocks)),
            recipe.bits, to + (e * rows + r) * zero_bytes);
  }
  return weight;
}

}  // namespace

Status CheckQMoeRaw(const CodeRecipe& recipe, int64_t rows, int64_t cols) {
  LS_RETURN_IF_ERROR(CheckRecipe(recipe, rows, cols));
  if (recipe.bits != 2 && recipe.bits != 3 && recipe.bits != 4 && recipe.bits != 8)
    return UnsupportedError("QMoE holds codes of 2, 3, 4 and 8 bits, not of {}", recipe.bits);
  if (cols * recipe.bits % 8 != 0)
    return UnsupportedError("rows of {} codes of {} bits do not fill bytes; pad the experts", cols,
                            recipe.bits);
  if (recipe.block == 0) return {};
  LS_RETURN_IF_ERROR(CheckBlock(recipe));
  if (cols % recipe.block != 0)
    return UnsupportedError(
        "blocks of {} do not divide rows of {}, and CUDA needs whole blocks; use "
        "smaller blocks or one scale per channel",
        recipe.block, cols);
  return {};
}

Status CheckQMoeTiled(const CodeRecipe& recipe, int64_t rows, int64_t cols) {
  LS_RETURN_IF_ERROR(CheckQMoeRaw(recipe, rows, cols));
  return CheckSm80Shape(rows, cols, recipe.bits);
}

Result<PackedWeight> PackQMoeRaw(std::span<const RowSource> experts, const CodeRecipe& recipe,
                                 ThreadPool* pool) {
  return Pack(experts, recipe, false, pool);
}
Result<PackedWeight> PackQMoeTiled(std::span<const RowSource> experts, const CodeRecipe& recipe,
                                   ThreadPool* pool) {
  return Pack(experts, recipe, true, pool);
}

}  // namespace lockstep

#include "quant/sm80_tiles.h"

#include <vector>

#include "quant/code_bits.h"

namespace lockstep {
namespace {

constexpr int64_t kTile = 64;

// Calls visit(place, source) for every code: `place` counts codes in the tiled bytes, `source` is
// row * cols + col.
template <typename Visit>
void ForEachCode(int64_t rows, int64_t cols, int bits, Visit visit) {
  const int64_t group = 128 / bits, interleaved = 16 / bits, word = 32 / bits;
  // Step 1 and step 3 composed: places within a group, and the codes they hold.
  std::vector<int64_t> permuted;
  for (int64_t pair = 0; pair < 4; ++pair)
    for (int64_t run = 0; run < group; run += 8)
      for (int64_t i = 0; i < 2; ++i) permuted.push_back(run + 2 * pair + i);
  std::vector<int64_t> order;
  for (int64_t at = 0; at < group; at += word) {
    for (int64_t i = 0; i < word; i += 2) order.push_back(permuted[static_cast<size_t>(at + i)]);
    for (int64_t i = 1; i < word; i += 2) order.push_back(permuted[static_cast<size_t>(at + i)]);
  }
  int64_t place = 0;
  for (int64_t first = 0; first < rows; first += interleaved)
    for (int64_t tile = 0; tile < cols; tile += kTile)
      for (int64_t row = first; row < first + interleaved; ++row)
        for (int64_t at = tile; at < tile + kTile; at += group)
          for (const int64_t i : order) visit(place++, row * cols + at + i);
}

}  // namespace

Status CheckSm80Shape(int64_t rows, int64_t cols, int bits) {
  if (bits != 4 && bits != 8)
    return UnsupportedError("SM80 tiles hold codes of 4 or 8 bits, not of {}; leave them raw",
                            bits);
  if (rows % (16 / bits) != 0 || cols % kTile != 0)
    return UnsupportedError(
        "SM80 tiles of {} bits need rows in {}s and columns in 64s, found [{}, {}]; leave them raw",
        bits, 16 / bits, rows, cols);
  return {};
}

void PackSm80Tiles(std::span<const uint8_t> codes, int64_t rows, int64_t cols, int bits,
                   uint8_t* out) {
  LS_CHECK(CheckSm80Shape(rows, cols, bits).has_value(), "[{}, {}]", rows, cols);
  std::vector<uint8_t> tiled(codes.size());
  ForEachCode(rows, cols, bits, [&](int64_t place, int64_t source) {
    tiled[static_cast<size_t>(place)] = codes[static_cast<size_t>(source)];
  });
  PackCodes(tiled, bits, out);
}

void UnpackSm80Tiles(std::span<const uint8_t> tiled, int64_t rows, int64_t cols, int bits,
                     std::span<uint8_t> codes) {
  LS_CHECK(CheckSm80Shape(rows, cols, bits).has_value(), "[{}, {}]", rows, cols);
  ForEachCode(rows, cols, bits, [&](int64_t place, int64_t source) {
    codes[static_cast<size_t>(source)] = CodeAt(tiled.data(), place, bits);
  });
}

}  // namespace lockstep

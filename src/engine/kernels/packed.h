// Packed weights: how the engine lays a matrix out so that one kernel serves prefill and decode.
//
// A tile is 16 rows (outputs). A block is 16 rows x 32 columns of a tile; blocks of a tile follow
// each other, tiles follow each other, so a thread that owns a range of tiles reads one unbroken
// stream. Codes lie as the int8 dot product wants them: for every group of 4 columns, 16 rows x 4
// bytes. Missing rows and columns of the last tile and block hold zero scales.
//
//   Q4       256 B codes · 16 fp16 d · 16 fp16 m                       value = d * q + m      5
//   bits Q4K      256 B codes · 16 u8 scale · 16 u8 min, and for every 8 blocks (256 columns) in
//   front of
//            them 16 fp16 d · 16 fp16 dmin            value = d*scale * q - dmin*min          4.625
//            bits
//   Q8       512 B codes (q + 128) · 16 fp16 d                         value = d * q          8.5
//   bits Q6K      256 B low nibbles · 128 B high pairs · 2 x 16 s8 scales, and for every 8 blocks
//   16 fp16 d
//                                                     value = d*scale * (q - 32)              6.56
//                                                     bits
//   BF16     16 bf16 for each of the 32 columns                                               16
//   bits F32      16 floats for each of the 32 columns 32 bits
//
// Low nibbles of a code byte are column groups 0-3 of the block, high nibbles groups 4-7.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

inline constexpr int kTileRows = 16;
inline constexpr int kBlockColumns = 32;
inline constexpr int kSuperColumns = 256;

// The one list of kinds: X(Name, "name", block_bytes, super_bytes), where super_bytes lie in front
// of every 8 blocks (0: none). A row here, its struct in formats.inc (`Name` for codes,
// `FloatsName` for floats) and its packer in pack_codes.cc are all that a kind is: the enum, the
// table and the dispatch of every kernel come from the list.
#define LS_FOR_EACH_FLOAT_KIND(X) \
  X(F32, "f32", 2048, 0)          \
  X(BF16, "bf16", 1024, 0)
#define LS_FOR_EACH_CODE_KIND(X) \
  X(Q4, "q4", 320, 0)            \
  X(Q4K, "q4k", 288, 64)         \
  X(Q8, "q8", 544, 0)            \
  X(Q6K, "q6k", 416, 32)

enum class PackedKind : uint8_t {
#define LS_KIND(name, text, block_bytes, super_bytes) k##name,
  LS_FOR_EACH_FLOAT_KIND(LS_KIND) LS_FOR_EACH_CODE_KIND(LS_KIND)
#undef LS_KIND
};

struct PackedKindInfo {
  PackedKind kind;
  const char* name;
  int block_bytes;
  int super_bytes;  // in front of every 8 blocks; 0: none
  bool codes;       // the int8 kernels read it; false: floats
};
inline constexpr PackedKindInfo kPackedKinds[] = {
#define LS_KIND(name, text, block_bytes, super_bytes) \
  {PackedKind::k##name, text, block_bytes, super_bytes, false},
    LS_FOR_EACH_FLOAT_KIND(LS_KIND)
#undef LS_KIND
#define LS_KIND(name, text, block_bytes, super_bytes) \
  {PackedKind::k##name, text, block_bytes, super_bytes, true},
        LS_FOR_EACH_CODE_KIND(LS_KIND)
#undef LS_KIND
};
constexpr const PackedKindInfo& InfoOf(PackedKind kind) {
  return kPackedKinds[static_cast<int>(kind)];
}
constexpr bool HoldsCodes(PackedKind kind) { return InfoOf(kind).codes; }

// Bytes of one tile of `blocks` blocks.
constexpr size_t TileBytes(PackedKind kind, int64_t blocks) {
  const PackedKindInfo& info = InfoOf(kind);
  const auto n = static_cast<size_t>(blocks);
  return n * static_cast<size_t>(info.block_bytes) +
         (n + 7) / 8 * static_cast<size_t>(info.super_bytes);
}

struct PackedMatrix {
  PackedKind kind = PackedKind::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  // 64-byte aligned; Tiles() * TileBytes(kind, Blocks())

  int64_t Tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int64_t Blocks() const { return (cols + kBlockColumns - 1) / kBlockColumns; }
  const std::byte* Tile(int64_t tile) const {
    return data + static_cast<size_t>(tile) * TileBytes(kind, Blocks());
  }
};

// Activations of some tokens as the int8 kernels read them: per token and block of 32 columns 32
// codes and one scale, per half block the scaled sum of its codes (for the weights' minimum or
// offset).
struct QuantizedActivations {
  const int8_t* codes;  // [token][blocks * 32]
  const float* scales;  // [token][blocks]
  const float* sums;    // [token][blocks * 2], scale * sum of 16 codes
  int64_t blocks;
};

}  // namespace lockstep

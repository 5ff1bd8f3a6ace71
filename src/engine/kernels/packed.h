// Packed weights: how the engine lays a matrix out so that one kernel serves prefill and decode.
//
// A tile is 16 rows (outputs). A block is 16 rows x 32 columns of a tile; blocks of a tile follow
// each other, tiles follow each other, so a thread that owns a range of tiles reads one unbroken
// stream. In front of every 8 blocks (256 columns) some kinds have a super block. Missing rows of
// the last tile hold zero scales, missing columns (of floats only) zeros.
//
// A block of codes is planes of bits, then scales. Every plane keeps the order that the int8 dot
// product wants: groups of 4 columns, in each 16 rows x 4 bytes, so that byte 4 * row + c % 4 of
// some 64 belongs to column c of a row.
//
//   8 bits    8 x 64 B, group g in the g-th
//   4 bits    4 x 64 B: low nibbles groups 0-3, high nibbles groups 4-7
//   2 bits    2 x 64 B: bits 2 (g % 4), 2 (g % 4) + 1 of the (g / 4)-th
//   1 bit     1 x 64 B: bit g
//
//   kind   for           block                                          super          bits
//   q4     Q4_1          4-bit · 16 fp16 d · 16 fp16 m                                  5
//                        value = d * q + m
//   q4s    Q4_0          4-bit · 16 fp16 d          d * (q - 8)                         4.5
//   q5     Q5_1          4-bit · 1-bit · fp16 d · fp16 m                                6
//   q5s    Q5_0          4-bit · 1-bit · fp16 d     d * (q - 16)                        5.5
//   q8     Q8_0, Q8_1    8-bit (q + 128) · fp16 d   d * q                               8.5
//   q2k    Q2_K          2-bit · 2 x 16 u8: scale (low nibble), min     fp16 d, dmin   2.63
//                        d*scale * q - dmin*min, halves of 16 columns
//   q3k    Q3_K          2-bit · 1-bit · 2 x 16 s8 scales               fp16 d         3.56
//                        d*scale * (q - 4), halves
//   q4k    Q4_K          4-bit · 16 u8 scale · 16 u8 min                fp16 d, dmin   4.63
//                        d*scale * q - dmin*min
//   q5k    Q5_K          4-bit · 1-bit · 16 u8 scale · 16 u8 min        fp16 d, dmin   5.63
//   q6k    Q6_K          4-bit · 2-bit · 2 x 16 s8 scales               fp16 d         6.56
//                        d*scale * (q - 32), halves
//   iq4nl  IQ4_NL        4-bit · fp16 d             d * book[q]                         4.5
//   iq4xs  IQ4_XS        4-bit · 16 s8 scale        d*scale * book[q]   fp16 d         4.31
//   mxfp4  MXFP4         4-bit · 16 u8 exponent     2^(e - 128) * book[q]               4.25
//   nvfp4  NVFP4         4-bit · 2 x 16 fp16 d      d * book[q], halves                 5
//   grid   IQ1_*, IQ2_*, 4-bit · 2 x 16 u8 scale    d*scale * book[q],  64 B book + 64, 4.75
//          IQ3_*, TQ*                               halves              16 fp32 d
//   f32, f16             32 columns of 16 numbers each; f16 also holds 8-bit floats
//   bf16                 16 pairs of columns, each 16 x 2 numbers
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

inline constexpr int kTileRows = 16;
inline constexpr int kBlockColumns = 32;
inline constexpr int kSuperColumns = 256;

// The one list of kinds: X(Name, "name", block_bytes, super_bytes), where super_bytes lie in front
// of every 8 blocks (0: none). A row here, its struct in formats.inc (`Name` for codes,
// `FloatsName` for floats) and a row in the table of its packers (kCodePackers in pack_codes.cc,
// kGridPackers in pack_grid.cc, kFloatPackers in pack.cc) are all that a kind is: the enum, the
// table and the dispatch of every kernel come from the list.
#define LS_FOR_EACH_FLOAT_KIND(X) \
  X(F32, "f32", 2048, 0)          \
  X(BF16, "bf16", 1024, 0)        \
  X(F16, "f16", 1024, 0)
#define LS_FOR_EACH_CODE_KIND(X) \
  X(Q4, "q4", 320, 0)            \
  X(Q4S, "q4s", 288, 0)          \
  X(Q5, "q5", 384, 0)            \
  X(Q5S, "q5s", 352, 0)          \
  X(Q8, "q8", 544, 0)            \
  X(Q2K, "q2k", 160, 64)         \
  X(Q3K, "q3k", 224, 32)         \
  X(Q4K, "q4k", 288, 64)         \
  X(Q5K, "q5k", 352, 64)         \
  X(Q6K, "q6k", 416, 32)         \
  X(IQ4NL, "iq4nl", 288, 0)      \
  X(IQ4XS, "iq4xs", 272, 32)     \
  X(MXFP4, "mxfp4", 272, 0)      \
  X(NVFP4, "nvfp4", 320, 0)      \
  X(Grid, "grid", 288, 128)

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

// What the int8 kernels know of 32 activations beside their codes: value = scale * code, and the
// sums that a weight's minimum (floats) or zero point (codes) is multiplied with.
struct alignas(16) ActivationBlock {
  float scale;
  float sum;                    // scale * sum of the codes
  int32_t minus_codes;          // -(sum of the codes)
  int16_t minus_half_codes[2];  // of 16 columns each
};

// Activations of some tokens as the int8 kernels read them.
struct QuantizedActivations {
  const int8_t* codes;           // [token][blocks * 32]
  const ActivationBlock* facts;  // [token][blocks]
  int64_t blocks;
};

}  // namespace lockstep

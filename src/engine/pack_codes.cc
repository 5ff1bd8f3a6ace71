#include "engine/pack_codes.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "engine/pack_grid.h"
#include "engine/pack_planes.h"
#include "quant/block.h"
#include "quant/k_scales.h"

namespace lockstep {
namespace {

// A type here says how one row's block gives 32 codes, and what is stored beside the planes:
//
//   kKind, kBits            the packed kind, and the bits of its codes
//   kElements, kBytes       of a stored block
//   Codes(block, sub, out)  columns 32 sub .. 32 sub + 31 of a stored block
//   Scales(block, sub, row, out)   into the packed block, behind its planes
//   Super(block, row, out)         into the super block; only for kinds that have one
struct NoSuper {
  static void Super(const std::byte*, int, std::byte*) {}
};

void CopyHalf(const std::byte* from, int row, std::byte* to) { std::memcpy(to + 2 * row, from, 2); }

// Low nibbles are columns 0-15, high nibbles 16-31.
void SplitNibbles(const uint8_t* qs, uint8_t* __restrict out) {
  for (int j = 0; j < 16; ++j) out[j] = qs[j] & 15;
  for (int j = 0; j < 16; ++j) out[16 + j] = qs[j] >> 4;
}
// The nibbles `high` (low or high ones) of 32 bytes.
void PickNibbles(const uint8_t* qs, bool high, uint8_t* __restrict out) {
  const int shift = high ? 4 : 0;
  for (int j = 0; j < 32; ++j) out[j] = qs[j] >> shift & 15;
}

struct Q40 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kQ4S;
  static constexpr int kBits = 4, kElements = 32, kBytes = 18;
  static void Codes(const std::byte* block, int, uint8_t* out) {
    SplitNibbles(Bytes(block + 2), out);
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) {
    CopyHalf(block, row, out);
  }
};

struct Q41 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kQ4;
  static constexpr int kBits = 4, kElements = 32, kBytes = 20;
  static void Codes(const std::byte* block, int, uint8_t* out) {
    SplitNibbles(Bytes(block + 4), out);
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) {
    CopyHalf(block, row, out);
    CopyHalf(block + 2, row, out + 32);
  }
};

// The fifth bits of 32 codes.
void AddFifthBits(uint32_t qh, uint8_t* __restrict out) {
  for (int j = 0; j < 32; ++j) out[j] |= static_cast<uint8_t>((qh >> j & 1) << 4);
}

struct Q50 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kQ5S;
  static constexpr int kBits = 5, kElements = 32, kBytes = 22;
  static void Codes(const std::byte* block, int, uint8_t* out) {
    SplitNibbles(Bytes(block + 6), out);
    AddFifthBits(LoadAs<uint32_t>(block + 2), out);
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) {
    CopyHalf(block, row, out);
  }
};

struct Q51 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kQ5;
  static constexpr int kBits = 5, kElements = 32, kBytes = 24;
  static void Codes(const std::byte* block, int, uint8_t* out) {
    SplitNibbles(Bytes(block + 8), out);
    AddFifthBits(LoadAs<uint32_t>(block + 4), out);
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) {
    CopyHalf(block, row, out);
    CopyHalf(block + 2, row, out + 32);
  }
};

// Q8_0 and Q8_1, whose sums no product needs.
template <int kCodes, int kSize>
struct Q8 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kQ8;
  static constexpr int kBits = 8, kElements = 32, kBytes = kSize;
  static void Codes(const std::byte* block, int, uint8_t* __restrict out) {
    const uint8_t* qs = Bytes(block + kCodes);
    for (int j = 0; j < 32; ++j) out[j] = qs[j] ^ 0x80;
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) {
    CopyHalf(block, row, out);
  }
};
using Q80 = Q8<2, 34>;
using Q81 = Q8<4, 36>;

// Bits 2 shift, 2 shift + 1 of 32 bytes: how Q2_K, Q3_K and Q6_K store pairs of bits.
void PickPairs(const uint8_t* qs, int quarter, uint8_t* __restrict out) {
  for (int j = 0; j < 32; ++j) out[j] = qs[j] >> 2 * quarter & 3;
}

struct Q2K {
  static constexpr PackedKind kKind = PackedKind::kQ2K;
  static constexpr int kBits = 2, kElements = 256, kBytes = 84;
  static void Codes(const std::byte* block, int sub, uint8_t* out) {
    PickPairs(Bytes(block + 16 + sub / 4 * 32), sub % 4, out);
  }
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    out[row] = block[2 * sub];
    out[16 + row] = block[2 * sub + 1];
  }
  static void Super(const std::byte* block, int row, std::byte* out) {
    CopyHalf(block + 80, row, out);
    CopyHalf(block + 82, row, out + 32);
  }
};

struct Q3K {
  static constexpr PackedKind kKind = PackedKind::kQ3K;
  static constexpr int kBits = 3, kElements = 256, kBytes = 110;
  static void Codes(const std::byte* block, int sub, uint8_t* __restrict out) {
    PickPairs(Bytes(block + 32 + sub / 4 * 32), sub % 4, out);
    const uint8_t* mask = Bytes(block);
    for (int j = 0; j < 32; ++j) out[j] |= static_cast<uint8_t>((mask[j] >> sub & 1) << 2);
  }
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    const uint8_t* scales = Bytes(block + 96);  // laid out as quant/q3_k.cc says
    for (int h = 0; h < 2; ++h) {
      const int group = 2 * sub + h;
      const int low = scales[group % 8] >> group / 8 * 4 & 15;
      const int high = scales[8 + group % 4] >> group / 4 * 2 & 3;
      out[16 * h + row] = static_cast<std::byte>((low | high << 4) - 32);
    }
  }
  static void Super(const std::byte* block, int row, std::byte* out) {
    CopyHalf(block + 108, row, out);
  }
};

void KScale(const std::byte* packed, int sub, int row, std::byte* out) {
  const KScales scales = UnpackKScales(Bytes(packed));
  out[row] = static_cast<std::byte>(scales.scale[sub]);
  out[16 + row] = static_cast<std::byte>(scales.minimum[sub]);
}

struct Q4K {
  static constexpr PackedKind kKind = PackedKind::kQ4K;
  static constexpr int kBits = 4, kElements = 256, kBytes = 144;
  static void Codes(const std::byte* block, int sub, uint8_t* out) {
    PickNibbles(Bytes(block + 16 + sub / 2 * 32), sub % 2 != 0, out);
  }
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    KScale(block + 4, sub, row, out);
  }
  static void Super(const std::byte* block, int row, std::byte* out) {
    CopyHalf(block, row, out);
    CopyHalf(block + 2, row, out + 32);
  }
};

struct Q5K {
  static constexpr PackedKind kKind = PackedKind::kQ5K;
  static constexpr int kBits = 5, kElements = 256, kBytes = 176;
  static void Codes(const std::byte* block, int sub, uint8_t* __restrict out) {
    PickNibbles(Bytes(block + 48 + sub / 2 * 32), sub % 2 != 0, out);
    const uint8_t* qh = Bytes(block + 16);
    for (int j = 0; j < 32; ++j) out[j] |= static_cast<uint8_t>((qh[j] >> sub & 1) << 4);
  }
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    KScale(block + 4, sub, row, out);
  }
  static void Super(const std::byte* block, int row, std::byte* out) {
    CopyHalf(block, row, out);
    CopyHalf(block + 2, row, out + 32);
  }
};

struct Q6K {
  static constexpr PackedKind kKind = PackedKind::kQ6K;
  static constexpr int kBits = 6, kElements = 256, kBytes = 210;
  static void Codes(const std::byte* block, int sub, uint8_t* __restrict out) {
    const int half = sub / 4, quarter = sub % 4;
    PickNibbles(Bytes(block + half * 64 + quarter % 2 * 32), quarter >= 2, out);
    const uint8_t* qh = Bytes(block + 128 + half * 32);
    for (int j = 0; j < 32; ++j) out[j] |= static_cast<uint8_t>((qh[j] >> 2 * quarter & 3) << 4);
  }
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    out[row] = block[192 + 2 * sub];
    out[16 + row] = block[192 + 2 * sub + 1];
  }
  static void Super(const std::byte* block, int row, std::byte* out) {
    CopyHalf(block + 208, row, out);
  }
};

struct IQ4NL : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kIQ4NL;
  static constexpr int kBits = 4, kElements = 32, kBytes = 18;
  static void Codes(const std::byte* block, int, uint8_t* out) {
    SplitNibbles(Bytes(block + 2), out);
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) {
    CopyHalf(block, row, out);
  }
};

struct IQ4XS {
  static constexpr PackedKind kKind = PackedKind::kIQ4XS;
  static constexpr int kBits = 4, kElements = 256, kBytes = 136;
  static void Codes(const std::byte* block, int sub, uint8_t* out) {
    SplitNibbles(Bytes(block + 8 + sub * 16), out);
  }
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    const int low = Bytes(block + 4)[sub / 2] >> sub % 2 * 4 & 15;
    const int high = LoadAs<uint16_t>(block + 2) >> 2 * sub & 3;
    out[row] = static_cast<std::byte>((low | high << 4) - 32);
  }
  static void Super(const std::byte* block, int row, std::byte* out) { CopyHalf(block, row, out); }
};

struct MXFP4 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kMXFP4;
  static constexpr int kBits = 4, kElements = 32, kBytes = 17;
  static void Codes(const std::byte* block, int, uint8_t* out) {
    SplitNibbles(Bytes(block + 1), out);
  }
  static void Scales(const std::byte* block, int, int row, std::byte* out) { out[row] = block[0]; }
};

struct NVFP4 : NoSuper {
  static constexpr PackedKind kKind = PackedKind::kNVFP4;
  static constexpr int kBits = 4, kElements = 64, kBytes = 36;
  static void Codes(const std::byte* block, int sub, uint8_t* __restrict out) {
    for (int h = 0; h < 2; ++h) {
      const uint8_t* qs = Bytes(block + 4 + 16 * sub + 8 * h);
      for (int j = 0; j < 8; ++j) out[16 * h + j] = qs[j] & 15;
      for (int j = 0; j < 8; ++j) out[16 * h + 8 + j] = qs[j] >> 4;
    }
  }
  // Half of an unsigned E4M3 number as fp16, exact: 2^-10 at least. Shifted into a half's place
  // the exponent's bias is 15 instead of 7: 2^8 makes up for it. 0x7f is zero, as in quant/.
  static void Scales(const std::byte* block, int sub, int row, std::byte* out) {
    for (int h = 0; h < 2; ++h) {
      const int stored = Bytes(block)[2 * sub + h];
      const float16 scaled{static_cast<uint16_t>(stored == 0x7f ? 0 : (stored & 0x7f) << 7)};
      const float16 d = ToFloat16(ToFloat(scaled) * 128.0f);
      std::memcpy(out + 32 * h + 2 * row, &d, 2);
    }
  }
};

template <typename Type>
void PackRows(const std::byte* const* rows, int64_t blocks, std::byte* tile) {
  constexpr PackedKindInfo kInfo = InfoOf(Type::kKind);
  constexpr int kSubs = Type::kElements / kBlockColumns;
  static_assert(kInfo.super_bytes == 0 || kSubs == 8);
  CodeRows codes;
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* from[kTileRows];
    for (int r = 0; r < kTileRows; ++r) from[r] = rows[r] + b / kSubs * Type::kBytes;
    const int sub = static_cast<int>(b % kSubs);
    if (kInfo.super_bytes > 0 && sub == 0) {
      for (int r = 0; r < kTileRows; ++r) Type::Super(from[r], r, tile);
      tile += kInfo.super_bytes;
    }
    for (int r = 0; r < kTileRows; ++r) Type::Codes(from[r], sub, codes.row[r]);
    PutPlanes<Type::kBits>(codes, tile);
    constexpr int kPlanes = 64 * Type::kBits;
    for (int r = 0; r < kTileRows; ++r) Type::Scales(from[r], sub, r, tile + kPlanes);
    tile += kInfo.block_bytes;
  }
}

template <typename Type>
constexpr CodePacker Packer(std::string_view name) {
  return {name, Type::kKind, PackRows<Type>};
}

constexpr CodePacker kCodePackers[] = {
    Packer<Q40>("Q4_0"),     Packer<Q41>("Q4_1"),    Packer<Q50>("Q5_0"),
    Packer<Q51>("Q5_1"),     Packer<Q80>("Q8_0"),    Packer<Q81>("Q8_1"),
    Packer<Q2K>("Q2_K"),     Packer<Q3K>("Q3_K"),    Packer<Q4K>("Q4_K"),
    Packer<Q5K>("Q5_K"),     Packer<Q6K>("Q6_K"),    Packer<IQ4NL>("IQ4_NL"),
    Packer<IQ4XS>("IQ4_XS"), Packer<MXFP4>("MXFP4"), Packer<NVFP4>("NVFP4"),
};

}  // namespace

const CodePacker* FindCodePacker(std::string_view type) {
  for (const CodePacker& packer : kCodePackers)
    if (packer.type == type) return &packer;
  for (const CodePacker& packer : GridPackers())
    if (packer.type == type) return &packer;
  return nullptr;
}

}  // namespace lockstep

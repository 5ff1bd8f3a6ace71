#include "engine/pack_grid.h"

#include <cstring>

#include "base/dtype.h"
#include "engine/pack_planes.h"
#include "quant/block.h"
#include "quant/dequantize.h"

namespace lockstep {
namespace {

constexpr int kHalvesOfBlock = 16;  // of a stored block of 256 columns
constexpr uint16_t kOne = 0x3c00;   // 1.0 as fp16

// What the packer must know of a type; the points themselves come from its dequantization of a
// block whose scale d is 1: element = d * (multiplier * kUnit) * point, all exact in fp32.
//
//   kBytes                  of a stored block of 256
//   kUnit                   a power of two
//   kBook                   the points' coordinates
//   Scale(block)            d, as fp16
//   SetScaleToOne(block)
//   Multiplier(block, half)
template <int kAt>
struct ScaleAt {
  static float16 Scale(const std::byte* block) { return LoadAs<float16>(block + kAt); }
  static void SetScaleToOne(std::byte* block) { std::memcpy(block + kAt, &kOne, 2); }
};

constexpr int kIq2Book[16] = {-0x2b, -0x19, -0x08, 0x08, 0x19, 0x2b};

struct IQ2XXS : ScaleAt<0> {
  static constexpr int kBytes = 66;
  static constexpr float kUnit = 0.125f;
  static constexpr auto& kBook = kIq2Book;
  static constexpr Dequantize* kDequantize = DequantizeIQ2_XXS;
  static int Multiplier(const std::byte* block, int half) {
    return static_cast<int>(2 * (LoadAs<uint32_t>(block + 2 + half / 2 * 8 + 4) >> 28) + 1);
  }
};

// 4 bits per 16 elements, low nibbles first.
int OddOfNibble(const std::byte* scales, int half) {
  return 2 * (Bytes(scales)[half / 2] >> half % 2 * 4 & 15) + 1;
}

struct IQ2XS : ScaleAt<0> {
  static constexpr int kBytes = 74;
  static constexpr float kUnit = 0.125f;
  static constexpr auto& kBook = kIq2Book;
  static constexpr Dequantize* kDequantize = DequantizeIQ2_XS;
  static int Multiplier(const std::byte* block, int half) { return OddOfNibble(block + 66, half); }
};

struct IQ2S : ScaleAt<0> {
  static constexpr int kBytes = 82;
  static constexpr float kUnit = 0.125f;
  static constexpr auto& kBook = kIq2Book;
  static constexpr Dequantize* kDequantize = DequantizeIQ2_S;
  static int Multiplier(const std::byte* block, int half) { return OddOfNibble(block + 74, half); }
};

struct IQ3XXS : ScaleAt<0> {
  static constexpr int kBytes = 98;
  static constexpr float kUnit = 0.25f;
  static constexpr int kBook[16] = {-0x3e, -0x34, -0x2c, -0x24, -0x1c, -0x14, -0x0c, -0x04,
                                    0x04,  0x0c,  0x14,  0x1c,  0x24,  0x2c,  0x34,  0x3e};
  static constexpr Dequantize* kDequantize = DequantizeIQ3_XXS;
  static int Multiplier(const std::byte* block, int half) {
    return static_cast<int>(2 * (LoadAs<uint32_t>(block + 66 + half / 2 * 4) >> 28) + 1);
  }
};

struct IQ3S : ScaleAt<0> {
  static constexpr int kBytes = 110;
  static constexpr float kUnit = 1;
  static constexpr int kBook[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};
  static constexpr Dequantize* kDequantize = DequantizeIQ3_S;
  static int Multiplier(const std::byte* block, int half) {
    return OddOfNibble(block + 106, half / 2);
  }
};

// Coordinates -1, 0, 1, moved by an eighth up or down: eighths.
constexpr int kIq1Book[16] = {-9, -7, -1, 1, 7, 9};

struct IQ1S : ScaleAt<0> {
  static constexpr int kBytes = 50;
  static constexpr float kUnit = 0.125f;
  static constexpr auto& kBook = kIq1Book;
  static constexpr Dequantize* kDequantize = DequantizeIQ1_S;
  static int Multiplier(const std::byte* block, int half) {
    return 2 * (LoadAs<uint16_t>(block + 34 + half / 2 * 2) >> 12 & 7) + 1;
  }
};

struct IQ1M {
  static constexpr int kBytes = 56;
  static constexpr float kUnit = 0.125f;
  static constexpr auto& kBook = kIq1Book;
  static constexpr Dequantize* kDequantize = DequantizeIQ1_M;
  // d is the top nibbles of four words, lowest first.
  static float16 Scale(const std::byte* block) {
    unsigned bits = 0;
    for (int i = 0; i < 4; ++i)
      bits |= static_cast<unsigned>(LoadAs<uint16_t>(block + 48 + 2 * i) >> 12) << 4 * i;
    return {static_cast<uint16_t>(bits)};
  }
  static void SetScaleToOne(std::byte* block) {
    for (int i = 0; i < 4; ++i) {
      const auto word = static_cast<uint16_t>((LoadAs<uint16_t>(block + 48 + 2 * i) & 0x0fff) |
                                              (kOne >> 4 * i & 15) << 12);
      std::memcpy(block + 48 + 2 * i, &word, 2);
    }
  }
  static int Multiplier(const std::byte* block, int half) {
    return 2 * (LoadAs<uint16_t>(block + 48 + half / 4 * 2) >> half % 4 * 3 & 7) + 1;
  }
};

template <int kSize, int kScaleAt, Dequantize* kFunction>
struct Ternary : ScaleAt<kScaleAt> {
  static constexpr int kBytes = kSize;
  static constexpr float kUnit = 1;
  static constexpr int kBook[16] = {-1, 0, 1, 2};  // TQ2_0 can say 2
  static constexpr Dequantize* kDequantize = kFunction;
  static int Multiplier(const std::byte*, int) { return 1; }
};
using TQ1_0 = Ternary<54, 52, DequantizeTQ1_0>;
using TQ2_0 = Ternary<66, 64, DequantizeTQ2_0>;

// Where a coordinate from -64 to 63 stands in the book.
template <typename Type>
struct IndexOf {
  uint8_t at[128] = {};
  constexpr IndexOf() {
    for (int i = 15; i >= 0; --i) at[Type::kBook[i] + 64] = static_cast<uint8_t>(i);
  }
};

template <typename Type>
void PackGrid(const std::byte* const* rows, int64_t blocks, std::byte* tile) {
  static constexpr IndexOf<Type> kIndex;
  constexpr PackedKindInfo kInfo = InfoOf(PackedKind::kGrid);
  std::byte* const last = tile + blocks / 8 * (kInfo.super_bytes + 8 * kInfo.block_bytes);
  CodeRows codes[8];
  for (int64_t at = 0; tile != last; at += Type::kBytes) {
    for (int i = 0; i < 64; ++i) tile[i] = static_cast<std::byte>(Type::kBook[i % 16] + 64);
    std::byte* first = tile + kInfo.super_bytes;
    for (int r = 0; r < kTileRows; ++r) {
      std::byte block[Type::kBytes];
      std::memcpy(block, rows[r] + at, Type::kBytes);
      const float d = ToFloat(Type::Scale(block)) * Type::kUnit;
      std::memcpy(tile + 64 + 4 * r, &d, 4);
      Type::SetScaleToOne(block);
      float values[kSuperColumns];
      Type::kDequantize(block, kSuperColumns, values);
      for (int half = 0; half < kHalvesOfBlock; ++half) {
        const int multiplier = Type::Multiplier(block, half);
        first[half / 2 * kInfo.block_bytes + 256 + half % 2 * 16 + r] =
            static_cast<std::byte>(multiplier);
        const float scale = static_cast<float>(multiplier) * Type::kUnit;
        uint8_t* to = codes[half / 2].row[r] + half % 2 * 16;
        for (int j = 0; j < 16; ++j)
          to[j] = kIndex.at[static_cast<int>(values[half * 16 + j] / scale) + 64];
      }
    }
    for (int b = 0; b < 8; ++b) PutPlanes<4>(codes[b], first + b * kInfo.block_bytes);
    tile = first + 8 * kInfo.block_bytes;
  }
}

template <typename Type>
constexpr CodePacker Packer(std::string_view name) {
  return {name, PackedKind::kGrid, PackGrid<Type>};
}

constexpr CodePacker kGridPackers[] = {
    Packer<IQ1S>("IQ1_S"),   Packer<IQ1M>("IQ1_M"),  Packer<IQ2XXS>("IQ2_XXS"),
    Packer<IQ2XS>("IQ2_XS"), Packer<IQ2S>("IQ2_S"),  Packer<IQ3XXS>("IQ3_XXS"),
    Packer<IQ3S>("IQ3_S"),   Packer<TQ1_0>("TQ1_0"), Packer<TQ2_0>("TQ2_0"),
};

}  // namespace

std::span<const CodePacker> GridPackers() { return kGridPackers; }

}  // namespace lockstep

// Planes: 16 rows of 32 codes as the planes of bits that kernels/packed.h draws, by words of 4
// codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/kernels/packed.h"

namespace lockstep {

// A tile's codes of one block, each in a byte.
struct CodeRows {
  alignas(64) uint8_t row[kTileRows][kBlockColumns];
};

// Writes 64 * kBits bytes. A word holds columns 4 g .. 4 g + 3 of a row.
template <int kBits>
void PutPlanes(const CodeRows& codes, std::byte* out) {
  static_assert(kBits == 2 || kBits == 3 || kBits == 4 || kBits == 5 || kBits == 6 || kBits == 8);
  constexpr int kWords = kBlockColumns / 4;
  uint32_t planes[16 * kBits];
  for (int r = 0; r < kTileRows; ++r) {
    uint32_t w[kWords];
    std::memcpy(w, codes.row[r], sizeof w);
    uint32_t* to = planes + r;
    if constexpr (kBits == 8) {
      for (int g = 0; g < kWords; ++g) to[16 * g] = w[g];
    }
    if constexpr (kBits >= 4 && kBits < 8) {
      for (int i = 0; i < 4; ++i) to[16 * i] = (w[i] & 0x0f0f0f0fu) | (w[i + 4] & 0x0f0f0f0fu) << 4;
      to += 64;
    }
    if constexpr (kBits == 2 || kBits == 3 || kBits == 6) {
      constexpr int kBit = kBits == 6 ? 4 : 0;
      for (int half = 0; half < 2; ++half) {
        uint32_t pairs = 0;
        for (int i = 0; i < 4; ++i) pairs |= (w[4 * half + i] >> kBit & 0x03030303u) << 2 * i;
        to[16 * half] = pairs;
      }
      to += 32;
    }
    if constexpr (kBits == 3 || kBits == 5) {
      uint32_t bits = 0;
      for (int g = 0; g < kWords; ++g) bits |= (w[g] >> (kBits - 1) & 0x01010101u) << g;
      *to = bits;
    }
  }
  std::memcpy(out, planes, sizeof planes);
}

}  // namespace lockstep

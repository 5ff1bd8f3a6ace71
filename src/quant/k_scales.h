// The 12 bytes of Q4_K and Q5_K that hold 8 scales (s) and 8 minima (m) of 6 bits each:
//
//   byte i     (i < 4)   high bits of s[i + 4] (2) | s[i] (6)
//   byte 4 + i (i < 4)   high bits of m[i + 4] (2) | m[i] (6)
//   byte 8 + i (i < 4)   low bits of m[i + 4] (4)  | low bits of s[i + 4] (4)
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

struct KScales {
  uint8_t scale[8];
  uint8_t minimum[8];
};

inline KScales UnpackKScales(const uint8_t* bytes) {
  KScales out;
  for (int i = 0; i < 4; ++i) {
    out.scale[i] = bytes[i] & 0x3f;
    out.minimum[i] = bytes[4 + i] & 0x3f;
    out.scale[4 + i] = static_cast<uint8_t>((bytes[8 + i] & 0x0f) | (bytes[i] >> 2 & 0x30));
    out.minimum[4 + i] = static_cast<uint8_t>(bytes[8 + i] >> 4 | (bytes[4 + i] >> 2 & 0x30));
  }
  return out;
}

// 8 scales and 8 minima, each below 64, into 12 bytes.
inline void PackKScales(const int32_t* scale, const int32_t* minimum, std::byte* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<std::byte>(scale[i] | scale[i + 4] >> 4 << 6);
    out[4 + i] = static_cast<std::byte>(minimum[i] | minimum[i + 4] >> 4 << 6);
    out[8 + i] = static_cast<std::byte>((scale[i + 4] & 15) | (minimum[i + 4] & 15) << 4);
  }
}

}  // namespace lockstep

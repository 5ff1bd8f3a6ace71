// Dither: by how much a number is moved before it is rounded, so that rounding falls elsewhere: a
// hash of the number, its place and the draw, the same in every run. Of the rounders of this folder
// (sixteen_bits.cc, engine_rounding.cc).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// In (-0.5, 0.5), by splitmix64's last steps; 0 for draw 0.
inline float Dither(float x, size_t place, uint32_t draw) {
  if (draw == 0) return 0;
  uint64_t z = (uint64_t{std::bit_cast<uint32_t>(x)} << 32 | draw) + place * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<float>(((z ^ (z >> 31)) >> 41) + 0.5) * 0x1p-23f - 0.5f;
}

}  // namespace lockstep

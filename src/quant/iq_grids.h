// The fixed grids of the IQ1, IQ2 and IQ3 formats: an index names a point of 8 (or 4) coordinates.
// iq_grids.inc holds the points packed, a few bits a coordinate; they are facts of the formats,
// written by tools/quant/make_iq_grids.py from gguf-py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

#include "quant/iq_grids.inc"

template <size_t kPoints, size_t kCoordinates>
using IqGrid = std::array<std::array<float, kCoordinates>, kPoints>;

// Unpacks 16-bit points: coordinate i of a point is `values` at its bits i * w .. i * w + w - 1,
// where w = 16 / kCoordinates.
template <size_t kCoordinates, size_t kPoints, size_t kValues>
constexpr IqGrid<kPoints, kCoordinates> UnpackIqGrid(const uint16_t (&points)[kPoints],
                                                     const float (&values)[kValues]) {
  constexpr unsigned kBits = 16 / kCoordinates;
  IqGrid<kPoints, kCoordinates> grid{};
  for (size_t p = 0; p < kPoints; ++p)
    for (size_t i = 0; i < kCoordinates; ++i)
      grid[p][i] = values[points[p] >> (kBits * i) & ((1u << kBits) - 1)];
  return grid;
}

// Seven stored signs; the eighth makes the number of minus signs even. Bit i: element i is negated.
inline uint8_t EvenSigns(uint32_t seven_bits) {
  const uint32_t odd = static_cast<uint32_t>(__builtin_popcount(seven_bits)) & 1;
  return static_cast<uint8_t>(seven_bits | odd << 7);
}

// out[i] = scale * point[i], negated where the bit of `signs` is set.
template <size_t kCoordinates>
void EmitSigned(const std::array<float, kCoordinates>& point, float scale, uint32_t signs,
                float* __restrict out) {
  for (size_t i = 0; i < kCoordinates; ++i) {
    const float x = scale * point[i];
    out[i] = (signs >> i & 1) != 0 ? -x : x;
  }
}

}  // namespace lockstep

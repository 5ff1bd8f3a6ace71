// IQ2_XXS, IQ2_XS and IQ2_S: 256 elements as 32 points of a grid in 8 dimensions, with signs.
//
//   IQ2_XXS, 66 bytes   0  d           fp16
//                       2  8 groups of 32 elements, 8 bytes each: four indices of 8 bits, then 32
//                          bits: four times 7 signs (see EvenSigns), 4 bits of scale on top
//   IQ2_XS, 74 bytes    0  d           fp16
//                       2  qs[32]      16 bits: index (9), signs (7)
//                      66  scales[8]   4 bits per 16 elements
//   IQ2_S, 82 bytes     0  d           fp16
//                       2  qs[32]      low 8 bits of the indices
//                      34  signs[32]   8 signs per point
//                      66  qh[8]       high 2 bits of the indices, four a byte
//                      74  scales[8]   4 bits per 16 elements
//
// element = ((d * (0.5 + scale)) * 0.25) * coordinate, negated where its sign is set.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/iq_grids.h"

namespace lockstep {
namespace {

constexpr float kCoordinates[4] = {0x08, 0x19, 0x2b, 0};
constexpr auto kXxsGrid = UnpackIqGrid<8>(kIq2XxsPoints, kCoordinates);
constexpr auto kXsGrid = UnpackIqGrid<8>(kIq2XsPoints, kCoordinates);
constexpr auto kSGrid = UnpackIqGrid<8>(kIq2SPoints, kCoordinates);

float Scale(float d, uint32_t scale) { return d * (0.5f + static_cast<float>(scale)) * 0.25f; }

}  // namespace

void DequantizeIQ2_XXS(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 66, out += 256) {
    const float d = LoadHalf(source);
    for (int group = 0; group < 8; ++group) {
      const std::byte* at = source + 2 + group * 8;
      const auto signs = LoadAs<uint32_t>(at + 4);
      const float scale = Scale(d, signs >> 28);
      for (int k = 0; k < 4; ++k)
        EmitSigned(kXxsGrid[LoadAs<uint8_t>(at + k)], scale, EvenSigns(signs >> 7 * k & 127),
                   out + group * 32 + k * 8);
    }
  }
}

void DequantizeIQ2_XS(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 74, out += 256) {
    const float d = LoadHalf(source);
    const uint8_t* scales = Bytes(source + 66);
    for (int k = 0; k < 32; ++k) {
      const uint32_t code = LoadAs<uint16_t>(source + 2 + 2 * k);
      const uint32_t scale = scales[k / 4] >> k / 2 % 2 * 4 & 15;
      EmitSigned(kXsGrid[code & 511], Scale(d, scale), EvenSigns(code >> 9), out + k * 8);
    }
  }
}

void DequantizeIQ2_S(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 82, out += 256) {
    const float d = LoadHalf(source);
    const uint8_t* qs = Bytes(source + 2);
    const uint8_t* signs = Bytes(source + 34);
    const uint8_t* qh = Bytes(source + 66);
    const uint8_t* scales = Bytes(source + 74);
    for (int k = 0; k < 32; ++k) {
      const uint32_t index = qs[k] | (qh[k / 4] >> k % 4 * 2 & 3u) << 8;
      const uint32_t scale = scales[k / 4] >> k / 2 % 2 * 4 & 15;
      EmitSigned(kSGrid[index], Scale(d, scale), signs[k], out + k * 8);
    }
  }
}

}  // namespace lockstep

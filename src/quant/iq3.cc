// IQ3_XXS and IQ3_S: 256 elements as 64 points of a grid in 4 dimensions, with signs.
//
//   IQ3_XXS, 98 bytes   0  d          fp16
//                       2  qs[64]     indices of 8 bits
//                      66  8 times 32 bits, one per 32 elements: four times 7 signs for 8 elements
//                          each (see EvenSigns), 4 bits of scale on top
//                      element = ((d * (0.5 + scale)) * 0.5) * coordinate, negated where its sign
//                      is set
//   IQ3_S, 110 bytes    0  d          fp16
//                       2  qs[64]     low 8 bits of the indices
//                      66  qh[8]      ninth bits, eight a byte
//                      74  signs[32]  one bit per element
//                     106  scales[4]  4 bits per 32 elements
//                      element = (d * (1 + 2 scale)) * coordinate, negated where its sign is set
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/iq_grids.h"

namespace lockstep {
namespace {

constexpr float kXxsCoordinates[16] = {0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3e};
constexpr float kSCoordinates[16] = {0x01, 0x03, 0x05, 0x07, 0x09, 0x0b, 0x0d, 0x0f};
constexpr auto kXxsGrid = UnpackIqGrid<4>(kIq3XxsPoints, kXxsCoordinates);
constexpr auto kSGrid = UnpackIqGrid<4>(kIq3SPoints, kSCoordinates);

}  // namespace

void DequantizeIQ3_XXS(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 98, out += 256) {
    const float d = LoadHalf(source);
    const uint8_t* qs = Bytes(source + 2);
    for (int group = 0; group < 8; ++group) {
      const auto packed = LoadAs<uint32_t>(source + 66 + group * 4);
      const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.5f;
      for (int k = 0; k < 8; ++k) {
        const uint32_t signs = EvenSigns(packed >> k / 2 * 7 & 127);
        EmitSigned(kXxsGrid[qs[group * 8 + k]], scale, signs >> k % 2 * 4,
                   out + group * 32 + k * 4);
      }
    }
  }
}

void DequantizeIQ3_S(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 110, out += 256) {
    const float d = LoadHalf(source);
    const uint8_t* qs = Bytes(source + 2);
    const uint8_t* qh = Bytes(source + 66);
    const uint8_t* signs = Bytes(source + 74);
    const uint8_t* scales = Bytes(source + 106);
    for (int k = 0; k < 64; ++k) {
      const uint32_t index = qs[k] | (qh[k / 8] >> k % 8 & 1u) << 8;
      const int scale = scales[k / 16] >> k / 8 % 2 * 4 & 15;
      EmitSigned(kSGrid[index], d * static_cast<float>(1 + 2 * scale),
                 static_cast<uint32_t>(signs[k / 2]) >> k % 2 * 4, out + k * 4);
    }
  }
}

}  // namespace lockstep

// IQ1_S and IQ1_M: 256 elements as 32 points of a ternary grid in 8 dimensions, moved by an eighth.
//
//   IQ1_S, 50 bytes   0  d          fp16
//                     2  qs[32]     low 8 bits of the indices
//                    34  qh[8]      16 bits per 32 elements: four times the high 3 bits of an
//                    index,
//                                   3 bits of scale, the sign of the shift
//   IQ1_M, 56 bytes   0  qs[32]     low 8 bits of the indices
//                    32  qh[16]     4 bits per point: the high 3 bits of its index, the shift's
//                    sign 48  scales[4]  16 bits each: four scales of 3 bits, one per 16 elements;
//                    the top
//                                   4 bits of the four words are the fp16 scale d, lowest first
//
// element = (d * (2 scale + 1)) * (coordinate + shift), where shift is 0.125 or -0.125.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/iq_grids.h"

namespace lockstep {
namespace {

constexpr float kCoordinates[4] = {-1, 0, 1, 0};
constexpr auto kGrid = UnpackIqGrid<8>(kIq1SPoints, kCoordinates);

void Emit(uint32_t index, float scale, bool negative_shift, float* __restrict out) {
  const float shift = negative_shift ? -0.125f : 0.125f;
  for (int i = 0; i < 8; ++i) out[i] = scale * (kGrid[index][static_cast<size_t>(i)] + shift);
}

}  // namespace

void DequantizeIQ1_S(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 50, out += 256) {
    const float d = LoadHalf(source);
    const uint8_t* qs = Bytes(source + 2);
    for (int group = 0; group < 8; ++group) {
      const uint32_t qh = LoadAs<uint16_t>(source + 34 + 2 * group);
      const float scale = d * static_cast<float>(2 * (qh >> 12 & 7) + 1);
      for (int k = 0; k < 4; ++k)
        Emit(qs[group * 4 + k] | (qh >> 3 * k & 7) << 8, scale, (qh & 0x8000) != 0,
             out + group * 32 + k * 8);
    }
  }
}

void DequantizeIQ1_M(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 56, out += 256) {
    const uint8_t* qs = Bytes(source);
    const uint8_t* qh = Bytes(source + 32);
    uint32_t scales[4];
    uint32_t d_bits = 0;
    for (int i = 0; i < 4; ++i) {
      scales[i] = LoadAs<uint16_t>(source + 48 + 2 * i);
      d_bits |= scales[i] >> 12 << 4 * i;
    }
    const float d = ToFloat(float16{static_cast<uint16_t>(d_bits)});
    for (int k = 0; k < 32; ++k) {
      const uint32_t high = qh[k / 2] >> k % 2 * 4 & 15u;
      const uint32_t scale = scales[k / 8] >> k / 2 % 4 * 3 & 7;
      Emit(qs[k] | (high & 7) << 8, d * static_cast<float>(2 * scale + 1), (high & 8) != 0,
           out + k * 8);
    }
  }
}

}  // namespace lockstep

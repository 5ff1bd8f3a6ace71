// Q4_K: 256 codes of 4 bits in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum.
//
//   144 bytes   0  d, dmin     fp16 each
//               4  scales[12]  see k_scales.h
//              16  qs[128]     for each pair of groups 32 bytes: low nibbles the first, high the
//              second
//
// element = (d * scale) * code - dmin * minimum.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/k_scales.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ4_K(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 144, out += 256) {
    const float d = LoadHalf(source);
    const float dmin = LoadHalf(source + 2);
    const KScales scales = UnpackKScales(Bytes(source + 4));
    for (int pair = 0; pair < 4; ++pair) {
      const uint8_t* qs = Bytes(source + 16 + pair * 32);
      const float low_scale = d * static_cast<float>(scales.scale[2 * pair]);
      const float low_minimum = dmin * static_cast<float>(scales.minimum[2 * pair]);
      const float high_scale = d * static_cast<float>(scales.scale[2 * pair + 1]);
      const float high_minimum = dmin * static_cast<float>(scales.minimum[2 * pair + 1]);
      float* to = out + pair * 64;
      for (int j = 0; j < 32; ++j) to[j] = low_scale * static_cast<float>(qs[j] & 15) - low_minimum;
      for (int j = 0; j < 32; ++j)
        to[32 + j] = high_scale * static_cast<float>(qs[j] >> 4) - high_minimum;
    }
  }
}

void QuantizeQ4_K(const float* x, int64_t n, std::byte* out) {
  for (; n > 0; n -= 256, x += 256, out += 144) {
    const auto block = fit::FitLineSuperBlock<15, 32, 63>(x);
    fit::StoreHalf(block.d, out);
    fit::StoreHalf(block.dmin, out + 2);
    PackKScales(block.scales.data(), block.minima.data(), out + 4);
    for (int pair = 0; pair < 4; ++pair)
      for (int j = 0; j < 32; ++j)
        out[16 + pair * 32 + j] = static_cast<std::byte>(block.codes[pair * 64 + j] |
                                                         block.codes[pair * 64 + 32 + j] << 4);
  }
}

}  // namespace lockstep

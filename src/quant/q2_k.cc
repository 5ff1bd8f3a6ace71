// Q2_K: 256 codes of 2 bits in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.
//
//   84 bytes   0  scales[16]  low nibble: scale, high nibble: minimum
//             16  qs[64]      codes
//             80  d, dmin     fp16 each
//
// element = (d * scale) * code - dmin * minimum. Codes: for each half of 128 elements, bits 0-1 of
// its 32 bytes are its first 32 elements, bits 2-3 the next 32, and so on.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ2_K(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 84, out += 256) {
    const uint8_t* scales = Bytes(source);
    const uint8_t* qs = Bytes(source + 16);
    const float d = LoadHalf(source + 80);
    const float dmin = LoadHalf(source + 82);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(scales[group] & 15);
      const float minimum = dmin * static_cast<float>(scales[group] >> 4);
      const uint8_t* codes = qs + group / 8 * 32 + group % 2 * 16;
      const int shift = group % 8 / 2 * 2;
      for (int j = 0; j < 16; ++j)
        out[group * 16 + j] = scale * static_cast<float>(codes[j] >> shift & 3) - minimum;
    }
  }
}

void QuantizeQ2_K(const float* x, int64_t n, std::byte* out) {
  for (; n > 0; n -= 256, x += 256, out += 84) {
    const auto block = fit::FitLineSuperBlock<3, 16, 15>(x);
    std::memset(out, 0, 84);
    for (int g = 0; g < 16; ++g)
      out[g] = static_cast<std::byte>(block.scales[g] | block.minima[g] << 4);
    for (int i = 0; i < 256; ++i)
      out[16 + i / 128 * 32 + i % 32] |= static_cast<std::byte>(block.codes[i] << i % 128 / 32 * 2);
    fit::StoreHalf(block.d, out + 80);
    fit::StoreHalf(block.dmin, out + 82);
  }
}

}  // namespace lockstep

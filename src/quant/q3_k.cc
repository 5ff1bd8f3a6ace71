// Q3_K: 256 codes of 3 bits in 16 groups of 16, each with a 6-bit scale.
//
//   110 bytes   0  hmask[32]   bit g of byte j: the third bit of element 32 g + j
//              32  qs[64]      the lower two bits, laid out as in Q2_K
//              96  scales[12]  16 scales: byte i of the first 8 holds the low nibbles of scales i
//              and
//                              i + 8; bits 2 k, 2 k + 1 of byte 8 + i the high bits of scale 4 k +
//                              i
//             108  d           fp16
//
// element = (d * (scale - 32)) * (code - 4), where the third bit adds the 4.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ3_K(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 110, out += 256) {
    const uint8_t* hmask = Bytes(source);
    const uint8_t* qs = Bytes(source + 32);
    const uint8_t* scales = Bytes(source + 96);
    const float d = LoadHalf(source + 108);
    for (int group = 0; group < 16; ++group) {
      const int low = scales[group % 8] >> group / 8 * 4 & 15;
      const int high = scales[8 + group % 4] >> group / 4 * 2 & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      const uint8_t* codes = qs + group / 8 * 32 + group % 2 * 16;
      const uint8_t* mask = hmask + group % 2 * 16;
      const int shift = group % 8 / 2 * 2;
      const int bit = group / 2;
      for (int j = 0; j < 16; ++j) {
        const int code = (codes[j] >> shift & 3) | (mask[j] >> bit & 1) << 2;
        out[group * 16 + j] = scale * static_cast<float>(code - 4);
      }
    }
  }
}

void QuantizeQ3_K(const float* x, int64_t n, std::byte* out) {
  for (; n > 0; n -= 256, x += 256, out += 110) {
    const auto block = fit::FitSuperBlock<fit::Integers<-4, 3>, 16, -32, 31>(x);
    std::memset(out, 0, 110);
    for (int i = 0; i < 256; ++i) {
      const int32_t code = block.codes[i] + 4;
      out[i % 32] |= static_cast<std::byte>((code >> 2) << i / 32);
      out[32 + i / 128 * 32 + i % 32] |= static_cast<std::byte>((code & 3) << i % 128 / 32 * 2);
    }
    for (int g = 0; g < 16; ++g) {
      const int32_t scale = block.scales[g] + 32;
      out[96 + g % 8] |= static_cast<std::byte>((scale & 15) << g / 8 * 4);
      out[104 + g % 4] |= static_cast<std::byte>((scale >> 4) << g / 4 * 2);
    }
    fit::StoreHalf(block.d, out + 108);
  }
}

}  // namespace lockstep

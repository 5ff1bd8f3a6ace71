// Q6_K: 256 codes of 6 bits in 16 groups of 16, each with an 8-bit scale.
//
//   210 bytes   0  ql[128]     low nibbles: for each half of 128 elements 64 bytes, low nibbles its
//                              first 64 elements, high nibbles the other 64
//             128  qh[64]      high pairs of bits: for each half 32 bytes, laid out as in Q2_K
//             192  scales[16]  int8
//             208  d           fp16
//
// element = (d * scale) * (code - 32).
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ6_K(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 210, out += 256) {
    const int8_t* scales = SignedBytes(source + 192);
    const float d = LoadHalf(source + 208);
    for (int group = 0; group < 8; ++group) {  // 32 elements: two scales
      const int half = group / 4;
      const uint8_t* ql = Bytes(source + half * 64 + group % 2 * 32);
      const uint8_t* qh = Bytes(source + 128 + half * 32);
      const int low_shift = group % 4 / 2 * 4;
      const int high_shift = group % 4 * 2;
      const float first = d * static_cast<float>(scales[2 * group]);
      const float second = d * static_cast<float>(scales[2 * group + 1]);
      float* to = out + group * 32;
      const auto code = [&](int j) {
        return ((ql[j] >> low_shift & 15) | (qh[j] >> high_shift & 3) << 4) - 32;
      };
      for (int j = 0; j < 16; ++j) to[j] = first * static_cast<float>(code(j));
      for (int j = 16; j < 32; ++j) to[j] = second * static_cast<float>(code(j));
    }
  }
}

void QuantizeQ6_K(const float* x, int64_t n, std::byte* out) {
  for (; n > 0; n -= 256, x += 256, out += 210) {
    const auto block = fit::FitSuperBlock<fit::Integers<-32, 31>, 16, -128, 127>(x);
    std::memset(out, 0, 210);
    for (int i = 0; i < 256; ++i) {
      const int half = i / 128, group = i % 128 / 32, j = i % 32;
      const int32_t code = block.codes[i] + 32;
      out[half * 64 + group % 2 * 32 + j] |= static_cast<std::byte>((code & 15) << group / 2 * 4);
      out[128 + half * 32 + j] |= static_cast<std::byte>((code >> 4) << group * 2);
    }
    for (int g = 0; g < 16; ++g) out[192 + g] = static_cast<std::byte>(block.scales[g]);
    fit::StoreHalf(block.d, out + 208);
  }
}

}  // namespace lockstep

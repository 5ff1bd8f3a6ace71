// Q4_0 and Q4_1: 32 codes of 4 bits under one scale; Q4_1 adds a minimum.
//
//   Q4_0, 18 bytes   0  d      fp16       element = d * (code - 8)
//                    2  qs[16] codes
//   Q4_1, 20 bytes   0  d, m   fp16 each  element = d * code + m
//                    4  qs[16] codes
//
// The low nibble of qs[j] is element j, the high nibble element j + 16.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ4_0(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 32, source += 18, out += 32) {
    const float d = LoadHalf(source);
    const uint8_t* qs = Bytes(source + 2);
    for (int j = 0; j < 16; ++j) out[j] = d * static_cast<float>((qs[j] & 15) - 8);
    for (int j = 0; j < 16; ++j) out[j + 16] = d * static_cast<float>((qs[j] >> 4) - 8);
  }
}

void DequantizeQ4_1(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 32, source += 20, out += 32) {
    const float d = LoadHalf(source);
    const float m = LoadHalf(source + 2);
    const uint8_t* qs = Bytes(source + 4);
    for (int j = 0; j < 16; ++j) out[j] = d * static_cast<float>(qs[j] & 15) + m;
    for (int j = 0; j < 16; ++j) out[j + 16] = d * static_cast<float>(qs[j] >> 4) + m;
  }
}

void QuantizeQ4_0(const float* x, int64_t n, std::byte* out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, x += 32, out += 18) {
    fit::StoreHalf(fit::FitBlock<fit::Integers<-8, 7>, 32>(x, codes), out);
    for (int j = 0; j < 16; ++j)
      out[2 + j] = static_cast<std::byte>((codes[j] + 8) | (codes[j + 16] + 8) << 4);
  }
}

void QuantizeQ4_1(const float* x, int64_t n, std::byte* out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, x += 32, out += 20) {
    const auto [d, m] = fit::FitLineBlock<15, 32>(x, codes);
    fit::StoreHalf(d, out);
    fit::StoreHalf(m, out + 2);
    for (int j = 0; j < 16; ++j) out[4 + j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
  }
}

}  // namespace lockstep

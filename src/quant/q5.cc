// Q5_0 and Q5_1: Q4_0 and Q4_1 with a fifth bit per code, kept apart.
//
//   Q5_0, 22 bytes   0  d      fp16       element = d * (code - 16)
//                    2  qh     32 bits    bit j is the fifth bit of element j
//                    6  qs[16] low nibbles
//   Q5_1, 24 bytes   0  d, m   fp16 each  element = d * code + m
//                    4  qh     32 bits
//                    8  qs[16] low nibbles
//
// The low nibble of qs[j] is element j, the high nibble element j + 16.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {
namespace {

// The 32 codes, 0 to 31.
void Unpack(const uint8_t* qs, uint32_t qh, int32_t* __restrict codes) {
  for (int j = 0; j < 16; ++j) codes[j] = qs[j] & 15;
  for (int j = 0; j < 16; ++j) codes[j + 16] = qs[j] >> 4;
  for (int j = 0; j < 32; ++j) codes[j] |= static_cast<int32_t>((qh >> j & 1) << 4);
}

// The other way.
void Pack(const int32_t* codes, std::byte* qh, std::byte* qs) {
  uint32_t high = 0;
  for (int j = 0; j < 32; ++j) high |= static_cast<uint32_t>(codes[j] >> 4 & 1) << j;
  std::memcpy(qh, &high, sizeof high);
  for (int j = 0; j < 16; ++j)
    qs[j] = static_cast<std::byte>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

}  // namespace

void DequantizeQ5_0(const std::byte* source, int64_t n, float* __restrict out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, source += 22, out += 32) {
    const float d = LoadHalf(source);
    Unpack(Bytes(source + 6), LoadAs<uint32_t>(source + 2), codes);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(codes[j] - 16);
  }
}

void DequantizeQ5_1(const std::byte* source, int64_t n, float* __restrict out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, source += 24, out += 32) {
    const float d = LoadHalf(source);
    const float m = LoadHalf(source + 2);
    Unpack(Bytes(source + 8), LoadAs<uint32_t>(source + 4), codes);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(codes[j]) + m;
  }
}

void QuantizeQ5_0(const float* x, int64_t n, std::byte* out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, x += 32, out += 22) {
    fit::StoreHalf(fit::FitBlock<fit::Integers<-16, 15>, 32>(x, codes), out);
    for (int32_t& code : codes) code += 16;
    Pack(codes, out + 2, out + 6);
  }
}

void QuantizeQ5_1(const float* x, int64_t n, std::byte* out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, x += 32, out += 24) {
    const auto [d, m] = fit::FitLineBlock<31, 32>(x, codes);
    fit::StoreHalf(d, out);
    fit::StoreHalf(m, out + 2);
    Pack(codes, out + 4, out + 8);
  }
}

}  // namespace lockstep

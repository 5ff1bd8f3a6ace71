// TQ1_0 and TQ2_0: ternary codes (-1, 0, 1) under one scale.
//
//   TQ1_0, 54 bytes   0  qs[48]  five codes a byte in base 3: 32 bytes hold elements 0-159, 16
//   bytes
//                                elements 160-239
//                    48  qh[4]   four codes a byte: elements 240-255
//                    52  d       fp16
//   TQ2_0, 66 bytes   0  qs[64]  two bits a code, laid out as in Q2_K
//                    64  d       fp16
//
// element = d * (code - 1). A byte of TQ1_0 is the fraction 0.c0 c1 c2 c3 c4 in base 3, scaled to
// 256: times 3^k modulo 256 moves digit k to the front, times 3 / 256 reads it.
#include "quant/block.h"
#include "quant/dequantize.h"

namespace lockstep {
namespace {

constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};

// `digits` codes from each of `count` bytes; all first digits come first.
float* Ternary(const uint8_t* bytes, int count, int digits, float d, float* __restrict out) {
  for (int k = 0; k < digits; ++k) {
    for (int j = 0; j < count; ++j) {
      const auto shifted = static_cast<uint8_t>(bytes[j] * kPowers[k]);
      out[j] = d * static_cast<float>((shifted * 3 >> 8) - 1);
    }
    out += count;
  }
  return out;
}

}  // namespace

void DequantizeTQ1_0(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 54) {
    const float d = LoadHalf(source + 52);
    out = Ternary(Bytes(source), 32, 5, d, out);
    out = Ternary(Bytes(source + 32), 16, 5, d, out);
    out = Ternary(Bytes(source + 48), 4, 4, d, out);
  }
}

void DequantizeTQ2_0(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 66, out += 256) {
    const float d = LoadHalf(source + 64);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* qs = Bytes(source + group / 4 * 32);
      const int shift = group % 4 * 2;
      for (int j = 0; j < 32; ++j)
        out[group * 32 + j] = d * static_cast<float>((qs[j] >> shift & 3) - 1);
    }
  }
}

}  // namespace lockstep

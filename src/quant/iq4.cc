// IQ4_NL and IQ4_XS: 4-bit codes into a fixed table of 16 values, dense near zero.
//
//   IQ4_NL, 18 bytes    0  d            fp16   element = d * value[code]
//                       2  qs[16]       codes: low nibble of byte j element j, high element j + 16
//   IQ4_XS, 136 bytes   0  d            fp16   element = (d * (scale - 32)) * value[code]
//                       2  scales_h     16 bits: bits 2 g, 2 g + 1 are the high bits of scale g
//                       4  scales_l[4]  low nibbles of scales 0-7, two a byte
//                       8  qs[128]      8 groups of 32 elements, each laid out as in IQ4_NL
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {
namespace {

constexpr float kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

void Expand(const uint8_t* qs, float d, float* __restrict out) {
  float scaled[16];  // one product per value instead of one per element
  for (int i = 0; i < 16; ++i) scaled[i] = d * kValues[i];
  for (int j = 0; j < 16; ++j) {
    out[j] = scaled[qs[j] & 15];
    out[j + 16] = scaled[qs[j] >> 4];
  }
}

// The table as a grid. Between two neighbours the code changes in the middle.
struct Values {
  static constexpr int kStarts = 2 * 15;
  static int32_t Encode(float y) {
    int32_t code = 0;
    for (int i = 0; i < 15; ++i) code += y > (kValues[i] + kValues[i + 1]) * 0.5f;
    return code;
  }
  static float Value(int32_t code) { return kValues[code]; }
  static float Start(int i) {
    const int step = 2 * (i / 2 - 7);
    return (i % 2 == 0 ? kValues[0] : kValues[15]) + static_cast<float>(step);
  }
};

void PackGroup(const int32_t* codes, std::byte* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
}

}  // namespace

void DequantizeIQ4_NL(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 32, source += 18, out += 32) Expand(Bytes(source + 2), LoadHalf(source), out);
}

void DequantizeIQ4_XS(const std::byte* source, int64_t n, float* out) {
  for (; n > 0; n -= 256, source += 136, out += 256) {
    const float d = LoadHalf(source);
    const int scales_h = LoadAs<uint16_t>(source + 2);
    const uint8_t* scales_l = Bytes(source + 4);
    for (int group = 0; group < 8; ++group) {
      const int low = scales_l[group / 2] >> group % 2 * 4 & 15;
      const int high = scales_h >> 2 * group & 3;
      Expand(Bytes(source + 8 + group * 16), d * static_cast<float>((low | high << 4) - 32),
             out + group * 32);
    }
  }
}

void QuantizeIQ4_NL(const float* x, int64_t n, std::byte* out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, x += 32, out += 18) {
    fit::StoreHalf(fit::FitBlock<Values, 32>(x, codes), out);
    PackGroup(codes, out + 2);
  }
}

void QuantizeIQ4_XS(const float* x, int64_t n, std::byte* out) {
  for (; n > 0; n -= 256, x += 256, out += 136) {
    const auto block = fit::FitSuperBlock<Values, 32, -32, 31>(x);
    std::memset(out, 0, 136);
    fit::StoreHalf(block.d, out);
    uint16_t high = 0;
    for (int g = 0; g < 8; ++g) {
      const int32_t scale = block.scales[g] + 32;
      high = static_cast<uint16_t>(high | (scale >> 4) << 2 * g);
      out[4 + g / 2] |= static_cast<std::byte>((scale & 15) << g % 2 * 4);
      PackGroup(block.codes.data() + g * 32, out + 8 + g * 16);
    }
    std::memcpy(out + 2, &high, sizeof high);
  }
}

}  // namespace lockstep

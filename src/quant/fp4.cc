// MXFP4 and NVFP4: 4-bit floats (E2M1) under shared scales of 8 bits.
//
//   MXFP4, 17 bytes   0  e       E8M0: the scale is 2^(e - 127)
//                     1  qs[16]  low nibble of byte j: element j, high nibble: element j + 16
//   NVFP4, 36 bytes   0  d[4]    unsigned E4M3, one scale per 16 elements
//                     4  qs[32]  for each 16 elements 8 bytes: low nibbles the first 8, high the
//                     rest
//
// The codes' values are kept doubled, so that they are integers, and the scales halved.
// https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
#include <algorithm>
#include <bit>
#include <cmath>

#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {
namespace {

constexpr float kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128). Below e = 2 that is a subnormal float. 255, which is NaN in the MX specification, is
// 2^127 as in ggml.
float HalvedE8M0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

// Half of the E4M3 number (bias 7) in the lower 7 bits. All ones, NaN in E4M3, is zero as in ggml.
float HalvedE4M3(uint8_t x) {
  if (x == 0 || x == 0x7f) return 0;
  const int exponent = x >> 3 & 15;
  const auto mantissa = static_cast<float>(x & 7);
  const float value =
      exponent == 0 ? mantissa * 0x1p-9f
                    : (1.0f + mantissa / 8.0f) *
                          std::bit_cast<float>(static_cast<uint32_t>(exponent - 7 + 127) << 23);
  return value * 0.5f;
}

}  // namespace

void DequantizeMXFP4(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 32, source += 17, out += 32) {
    const float d = HalvedE8M0(LoadAs<uint8_t>(source));
    const uint8_t* qs = Bytes(source + 1);
    for (int j = 0; j < 16; ++j) {
      out[j] = d * kDoubled[qs[j] & 15];
      out[j + 16] = d * kDoubled[qs[j] >> 4];
    }
  }
}

void DequantizeNVFP4(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 64, source += 36, out += 64) {
    for (int group = 0; group < 4; ++group) {
      const float d = HalvedE4M3(LoadAs<uint8_t>(source + group));
      const uint8_t* qs = Bytes(source + 4 + group * 8);
      for (int j = 0; j < 8; ++j) {
        out[group * 16 + j] = d * kDoubled[qs[j] & 15];
        out[group * 16 + 8 + j] = d * kDoubled[qs[j] >> 4];
      }
    }
  }
}

// The scale is a power of two: that of the largest element and its neighbours are tried.
void QuantizeMXFP4(const float* x, int64_t n, std::byte* out) {
  struct Doubled {
    static int32_t Encode(float y) {
      int32_t code = 0;
      for (int i = 0; i < 7; ++i) code += std::abs(y) > (kDoubled[i] + kDoubled[i + 1]) * 0.5f;
      return code | (y < 0 && code != 0 ? 8 : 0);
    }
    static float Value(int32_t code) { return kDoubled[code]; }
  };
  for (; n > 0; n -= 32, x += 32, out += 17) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
    // 2^(e - 128) * 12 is the largest value: it holds `largest` without clipping or just below.
    const int middle = largest > 0 ? std::ilogb(largest) - 3 + 128 : 0;
    int32_t codes[32], tried[32];
    float best_error = -1;
    for (int e = std::clamp(middle - 1, 0, 254); e <= std::clamp(middle + 1, 0, 254); ++e) {
      const float error = fit::ErrorOf<Doubled, 32>(x, HalvedE8M0(static_cast<uint8_t>(e)), tried);
      if (best_error >= 0 && error >= best_error) continue;
      best_error = error;
      out[0] = static_cast<std::byte>(e);
      std::copy(std::begin(tried), std::end(tried), codes);
    }
    for (int j = 0; j < 16; ++j) out[1 + j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
  }
}

}  // namespace lockstep

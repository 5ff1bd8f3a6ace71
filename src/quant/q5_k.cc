// Q5_K: Q4_K with a fifth bit per code, kept apart.
//
//   176 bytes   0  d, dmin     fp16 each
//               4  scales[12]  see k_scales.h
//              16  qh[32]      bit g of byte j: the fifth bit of element 32 g + j
//              48  qs[128]     for each pair of groups 32 bytes: low nibbles the first, high the
//              second
//
// element = (d * scale) * code - dmin * minimum.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/k_scales.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ5_K(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 176, out += 256) {
    const float d = LoadHalf(source);
    const float dmin = LoadHalf(source + 2);
    const KScales scales = UnpackKScales(Bytes(source + 4));
    const uint8_t* qh = Bytes(source + 16);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* qs = Bytes(source + 48 + group / 2 * 32);
      const int shift = group % 2 * 4;
      const float scale = d * static_cast<float>(scales.scale[group]);
      const float minimum = dmin * static_cast<float>(scales.minimum[group]);
      float* to = out + group * 32;
      for (int j = 0; j < 32; ++j) {
        const int code = (qs[j] >> shift & 15) | (qh[j] >> group & 1) << 4;
        to[j] = scale * static_cast<float>(code) - minimum;
      }
    }
  }
}

void QuantizeQ5_K(const float* x, int64_t n, std::byte* out) {
  for (; n > 0; n -= 256, x += 256, out += 176) {
    const auto block = fit::FitLineSuperBlock<31, 32, 63>(x);
    std::memset(out, 0, 176);
    fit::StoreHalf(block.d, out);
    fit::StoreHalf(block.dmin, out + 2);
    PackKScales(block.scales.data(), block.minima.data(), out + 4);
    for (int i = 0; i < 256; ++i) {
      const int group = i / 32, j = i % 32;
      out[16 + j] |= static_cast<std::byte>((block.codes[i] >> 4) << group);
      out[48 + group / 2 * 32 + j] |=
          static_cast<std::byte>((block.codes[i] & 15) << group % 2 * 4);
    }
  }
}

}  // namespace lockstep

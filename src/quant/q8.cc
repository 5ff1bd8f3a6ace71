// Q8_0, Q8_1 and Q8_K: signed bytes under one scale. The sums that Q8_1 and Q8_K carry serve
// products with other types; they do not enter the elements.
//
//   Q8_0, 34 bytes    0  d       fp16     element = d * code
//                     2  qs[32]  int8
//   Q8_1, 36 bytes    0  d       fp16     element = d * code
//                     2  s       fp16     d * sum of the codes
//                     4  qs[32]  int8
//   Q8_K, 292 bytes   0  d       float    element = d * code
//                     4  qs[256] int8
//                   260  bsums[16] int16  sums of 16 codes each
//
// gguf-py's table still gives Q8_1 40 bytes (two floats, as ggml once had); 36 is ggml's struct.
#include "quant/block.h"
#include "quant/dequantize.h"
#include "quant/fit.h"
#include "quant/quantize.h"

namespace lockstep {

void DequantizeQ8_0(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 32, source += 34, out += 32) {
    const float d = LoadHalf(source);
    const int8_t* qs = SignedBytes(source + 2);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(qs[j]);
  }
}

void DequantizeQ8_1(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 32, source += 36, out += 32) {
    const float d = LoadHalf(source);
    const int8_t* qs = SignedBytes(source + 4);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(qs[j]);
  }
}

void DequantizeQ8_K(const std::byte* source, int64_t n, float* __restrict out) {
  for (; n > 0; n -= 256, source += 292, out += 256) {
    const auto d = LoadAs<float>(source);
    const int8_t* qs = SignedBytes(source + 4);
    for (int j = 0; j < 256; ++j) out[j] = d * static_cast<float>(qs[j]);
  }
}

// -128 is left out: kernels negate codes.
void QuantizeQ8_0(const float* x, int64_t n, std::byte* out) {
  int32_t codes[32];
  for (; n > 0; n -= 32, x += 32, out += 34) {
    fit::StoreHalf(fit::FitBlock<fit::Integers<-127, 127, 4>, 32>(x, codes), out);
    for (int j = 0; j < 32; ++j) out[2 + j] = static_cast<std::byte>(codes[j]);
  }
}

}  // namespace lockstep

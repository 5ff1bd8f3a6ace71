// Floats into the plain types: one rounding each.
#include <cstring>

#include "base/dtype.h"
#include "quant/quantize.h"

namespace lockstep {

void QuantizeF64(const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double wide = x[i];
    std::memcpy(out + i * 8, &wide, 8);
  }
}

void QuantizeF32(const float* x, int64_t n, std::byte* out) {
  std::memcpy(out, x, static_cast<size_t>(n) * 4);
}

void QuantizeF16(const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float16 half = ToFloat16(x[i]);
    std::memcpy(out + i * 2, &half, 2);
  }
}

void QuantizeBF16(const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    const bfloat16 half = ToBFloat16(x[i]);
    std::memcpy(out + i * 2, &half, 2);
  }
}

}  // namespace lockstep

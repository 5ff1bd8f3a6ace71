// Plain types: one element after the other, little-endian. Integers convert by value, rounded to
// the nearest float.
#include <bit>
#include <limits>

#include "base/dtype.h"
#include "quant/block.h"
#include "quant/dequantize.h"

namespace lockstep {
namespace {

template <typename T>
void Convert(const std::byte* source, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(LoadAs<T>(source + i * static_cast<int64_t>(sizeof(T))));
}

}  // namespace

void DequantizeF64(const std::byte* source, int64_t n, float* out) {
  Convert<double>(source, n, out);
}
void DequantizeF32(const std::byte* source, int64_t n, float* out) {
  if (n > 0) std::memcpy(out, source, static_cast<size_t>(n) * sizeof(float));
}

// ToFloat(float16) without its branch, so that the loop vectorises: an exponent of all ones
// (infinity, NaN) is set by a mask.
void DequantizeF16(const std::byte* source, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = LoadAs<uint16_t>(source + 2 * i);
    const uint32_t magnitude = (bits & 0x7fffu) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;
    out[i] =
        std::bit_cast<float>((bits & 0x8000u) << 16 | std::bit_cast<uint32_t>(scaled) | special);
  }
}
void DequantizeBF16(const std::byte* source, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = ToFloat(LoadAs<bfloat16>(source + 2 * i));
}

void DequantizeI64(const std::byte* source, int64_t n, float* out) {
  Convert<int64_t>(source, n, out);
}
void DequantizeI32(const std::byte* source, int64_t n, float* out) {
  Convert<int32_t>(source, n, out);
}
void DequantizeI16(const std::byte* source, int64_t n, float* out) {
  Convert<int16_t>(source, n, out);
}
void DequantizeI8(const std::byte* source, int64_t n, float* out) {
  Convert<int8_t>(source, n, out);
}
void DequantizeU64(const std::byte* source, int64_t n, float* out) {
  Convert<uint64_t>(source, n, out);
}
void DequantizeU32(const std::byte* source, int64_t n, float* out) {
  Convert<uint32_t>(source, n, out);
}
void DequantizeU16(const std::byte* source, int64_t n, float* out) {
  Convert<uint16_t>(source, n, out);
}
void DequantizeU8(const std::byte* source, int64_t n, float* out) {
  Convert<uint8_t>(source, n, out);
}

// E4M3 without infinities ("fn"): sign, 4 bits of exponent (bias 7), 3 of mantissa; all ones is
// NaN. Shifted into a half's place the exponent's bias is 15: 2^8 makes up for it.
void DequantizeF8E4M3(const std::byte* source, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = LoadAs<uint8_t>(source + i);
    const auto half = static_cast<uint16_t>((bits & 0x80u) << 8 | (bits & 0x7fu) << 7);
    out[i] = (bits & 0x7fu) == 0x7fu ? std::numeric_limits<float>::quiet_NaN()
                                     : ToFloat(float16{half}) * 256.0f;
  }
}

// E5M2 is the upper byte of a half.
void DequantizeF8E5M2(const std::byte* source, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = LoadAs<uint8_t>(source + i);
    out[i] = ToFloat(float16{static_cast<uint16_t>(bits << 8)});
  }
}

// E8M0, the scales of MX formats: 2^(x - 127), 255 is NaN. 2^-127 is a subnormal float.
void DequantizeF8E8M0(const std::byte* source, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t exponent = LoadAs<uint8_t>(source + i);
    out[i] = exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                             : std::bit_cast<float>(exponent == 0 ? 0x00400000u : exponent << 23);
  }
}

}  // namespace lockstep

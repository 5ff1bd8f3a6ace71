// The plain element types of tensors, and the two 16-bit floats. Block-quantized types are in
// quant/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

std::string_view DTypeName(DType dtype);  // safetensors' word: "F32", "BF16", "I64", ...
std::optional<DType> DTypeFromName(std::string_view name);
size_t DTypeSize(DType dtype);  // bytes of one element

struct bfloat16 {
  uint16_t bits;
};
struct float16 {
  uint16_t bits;
};

inline float ToFloat(bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Exact: every half is a float. Subnormals are scaled by 2^112 in float arithmetic.
inline float ToFloat(float16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t magnitude = uint32_t{x.bits & 0x7fffu} << 13;
  if ((x.bits & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

bfloat16 ToBFloat16(float x);  // round to nearest, ties to even; NaN stays NaN
float16 ToFloat16(float x);    // round to nearest, ties to even; overflow gives infinity

// Converts n plain elements to float. Integers convert by value. `source` may be unaligned.
void ConvertToFloat(DType dtype, const std::byte* source, size_t n, float* out);
void ConvertToDouble(DType dtype, const std::byte* source, size_t n, double* out);

}  // namespace lockstep

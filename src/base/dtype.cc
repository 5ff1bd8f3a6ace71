#include "base/dtype.h"

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace lockstep {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  size_t size;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kF64, "F64", 8},   {DType::kF32, "F32", 4}, {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2}, {DType::kI64, "I64", 8}, {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},   {DType::kI8, "I8", 1},   {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
};

const DTypeRow& Row(DType dtype) {
  for (const DTypeRow& row : kDTypes)
    if (row.dtype == dtype) return row;
  LS_CHECK(false, "dtype {}", int(dtype));
  __builtin_unreachable();
}

template <typename Stored, typename Out>
void Convert(const std::byte* source, size_t n, Out* out) {
  for (size_t i = 0; i < n; ++i) {
    Stored x;
    std::memcpy(&x, source + i * sizeof(Stored), sizeof(Stored));
    if constexpr (std::is_arithmetic_v<Stored>)
      out[i] = static_cast<Out>(x);
    else
      out[i] = static_cast<Out>(ToFloat(x));
  }
}

template <typename Out>
void ConvertAny(DType dtype, const std::byte* source, size_t n, Out* out) {
  switch (dtype) {
    case DType::kF64:
      return Convert<double>(source, n, out);
    case DType::kF32:
      return Convert<float>(source, n, out);
    case DType::kF16:
      return Convert<float16>(source, n, out);
    case DType::kBF16:
      return Convert<bfloat16>(source, n, out);
    case DType::kI64:
      return Convert<int64_t>(source, n, out);
    case DType::kI32:
      return Convert<int32_t>(source, n, out);
    case DType::kI16:
      return Convert<int16_t>(source, n, out);
    case DType::kI8:
      return Convert<int8_t>(source, n, out);
    case DType::kU8:
    case DType::kBool:
      return Convert<uint8_t>(source, n, out);
  }
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Row(dtype).name; }
size_t DTypeSize(DType dtype) { return Row(dtype).size; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

bfloat16 ToBFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

float16 ToFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)};  // >= 65520
  if (magnitude < 0x38800000) {  // below 2^-14: the result is subnormal, a multiple of 2^-24
    const float units = std::bit_cast<float>(magnitude) * 0x1p24f;
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(units)))};
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13))};
}

void ConvertToFloat(DType dtype, const std::byte* source, size_t n, float* out) {
  ConvertAny(dtype, source, n, out);
}
void ConvertToDouble(DType dtype, const std::byte* source, size_t n, double* out) {
  ConvertAny(dtype, source, n, out);
}

}  // namespace lockstep

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "base/quoted.h"
#include "formats/onnx.h"

namespace lockstep {
namespace {

struct TypeRow {
  int number;
  std::string_view name;
  int bits;
};

// onnx.proto, TensorProto.DataType. Strings have no size.
constexpr TypeRow kTypes[] = {
    {1, "float", 32},      {2, "uint8", 8},           {3, "int8", 8},
    {4, "uint16", 16},     {5, "int16", 16},          {6, "int32", 32},
    {7, "int64", 64},      {8, "string", 0},          {9, "bool", 8},
    {10, "float16", 16},   {11, "double", 64},        {12, "uint32", 32},
    {13, "uint64", 64},    {14, "complex64", 64},     {15, "complex128", 128},
    {16, "bfloat16", 16},  {17, "float8e4m3fn", 8},   {18, "float8e4m3fnuz", 8},
    {19, "float8e5m2", 8}, {20, "float8e5m2fnuz", 8}, {21, "uint4", 4},
    {22, "int4", 4},       {23, "float4e2m1", 4},     {24, "float8e8m0", 8},
    {25, "uint2", 2},      {26, "int2", 2},
};

const TypeRow* RowOf(OnnxType type) {
  for (const TypeRow& row : kTypes)
    if (row.number == static_cast<int>(type)) return &row;
  return nullptr;
}

// Of bytes that may be unaligned.
template <typename T>
T At(std::span<const std::byte> bytes, size_t i) {
  T x;
  std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
  return x;
}

int Nibble(std::span<const std::byte> bytes, size_t i) {
  return std::to_integer<int>(bytes[i / 2]) >> (i % 2 * 4) & 15;
}

bool IsInteger(OnnxType type) {
  switch (type) {
    case OnnxType::kUInt8:
    case OnnxType::kInt8:
    case OnnxType::kUInt16:
    case OnnxType::kInt16:
    case OnnxType::kInt32:
    case OnnxType::kInt64:
    case OnnxType::kBool:
    case OnnxType::kUInt32:
    case OnnxType::kUInt64:
    case OnnxType::kUInt4:
    case OnnxType::kInt4:
      return true;
    default:
      return false;
  }
}

int64_t IntAt(const OnnxTensor& tensor, size_t i) {
  const auto bytes = tensor.bytes;
  switch (tensor.type) {
    case OnnxType::kBool:
      return At<uint8_t>(bytes, i) != 0;
    case OnnxType::kUInt8:
      return At<uint8_t>(bytes, i);
    case OnnxType::kInt8:
      return At<int8_t>(bytes, i);
    case OnnxType::kUInt16:
      return At<uint16_t>(bytes, i);
    case OnnxType::kInt16:
      return At<int16_t>(bytes, i);
    case OnnxType::kInt32:
      return At<int32_t>(bytes, i);
    case OnnxType::kUInt32:
      return At<uint32_t>(bytes, i);
    case OnnxType::kUInt4:
      return Nibble(bytes, i);
    case OnnxType::kInt4:
      return (Nibble(bytes, i) ^ 8) - 8;
    default:
      return At<int64_t>(bytes, i);
  }
}

double DoubleAt(const OnnxTensor& tensor, size_t i) {
  switch (tensor.type) {
    case OnnxType::kFloat:
      return At<float>(tensor.bytes, i);
    case OnnxType::kDouble:
      return At<double>(tensor.bytes, i);
    case OnnxType::kFloat16:
      return ToFloat(float16{At<uint16_t>(tensor.bytes, i)});
    case OnnxType::kBFloat16:
      return ToFloat(bfloat16{At<uint16_t>(tensor.bytes, i)});
    case OnnxType::kUInt64:
      return static_cast<double>(At<uint64_t>(tensor.bytes, i));
    default:
      return static_cast<double>(IntAt(tensor, i));
  }
}

bool IsNumber(OnnxType type) {
  return IsInteger(type) || type == OnnxType::kFloat || type == OnnxType::kDouble ||
         type == OnnxType::kFloat16 || type == OnnxType::kBFloat16;
}

template <typename T>
Result<std::vector<T>> ReadAll(const OnnxTensor& tensor) {
  if (!IsNumber(tensor.type))
    return UnsupportedError("tensor {} is {}, expected plain numbers", Quoted(tensor.name),
                            OnnxTypeName(tensor.type));
  std::vector<T> out(static_cast<size_t>(tensor.elements));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(DoubleAt(tensor, i));
  return out;
}

}  // namespace

std::string OnnxTypeName(OnnxType type) {
  const TypeRow* row = RowOf(type);
  return row == nullptr ? fmt::format("type {}", static_cast<int>(type)) : std::string(row->name);
}

int OnnxTypeBits(OnnxType type) {
  const TypeRow* row = RowOf(type);
  return row == nullptr ? 0 : row->bits;
}

Result<std::vector<double>> ReadDoubles(const OnnxTensor& tensor) {
  return ReadAll<double>(tensor);
}

Result<std::vector<float>> ReadFloats(const OnnxTensor& tensor) {
  if (tensor.type != OnnxType::kFloat) return ReadAll<float>(tensor);
  std::vector<float> out(static_cast<size_t>(tensor.elements));
  if (!out.empty()) std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}

Result<std::vector<int64_t>> ReadInts(const OnnxTensor& tensor) {
  if (!IsInteger(tensor.type))
    return UnsupportedError("tensor {} is {}, expected integers", Quoted(tensor.name),
                            OnnxTypeName(tensor.type));
  std::vector<int64_t> out(static_cast<size_t>(tensor.elements));
  for (size_t i = 0; i < out.size(); ++i) out[i] = IntAt(tensor, i);
  return out;
}

}  // namespace lockstep

#include "formats/onnx_encode.h"

#include <span>

#include "formats/onnx_read.h"
#include "formats/protobuf.h"

namespace lockstep {
namespace {

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// AttributeProto.AttributeType of onnx.proto.
enum AttributeKind : uint64_t { kFloat = 1, kInt = 2, kString = 3, kTensor = 4, kInts = 7 };
constexpr uint32_t kAttributeInts = 8;

std::string EncodeTensor(const OnnxTensorValue& tensor) {
  std::string out;
  for (const int64_t dim : tensor.dims)
    AppendVarintField(kTensorDims, static_cast<uint64_t>(dim), out);
  AppendVarintField(kTensorType, static_cast<uint64_t>(tensor.type), out);
  AppendBytesField(kTensorRaw, Text(tensor.bytes), out);
  return out;
}

struct AttributeEncoder {
  std::string& out;

  void operator()(float value) const {
    AppendFloatField(kAttributeFloat, value, out);
    AppendVarintField(kAttributeType, kFloat, out);
  }
  void operator()(int64_t value) const {
    AppendVarintField(kAttributeInt, static_cast<uint64_t>(value), out);
    AppendVarintField(kAttributeType, kInt, out);
  }
  void operator()(const std::string& value) const {
    AppendBytesField(kAttributeString, value, out);
    AppendVarintField(kAttributeType, kString, out);
  }
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values)
      AppendVarintField(kAttributeInts, static_cast<uint64_t>(value), out);
    AppendVarintField(kAttributeType, kInts, out);
  }
  void operator()(const OnnxTensorValue& value) const {
    AppendBytesField(kAttributeTensor, EncodeTensor(value), out);
    AppendVarintField(kAttributeType, kTensor, out);
  }
};

std::string EncodeEntry(std::string_view key, std::string_view value) {
  std::string out;
  AppendBytesField(1, key, out);
  AppendBytesField(2, value, out);
  return out;
}

}  // namespace

std::string EncodeOnnxAttribute(std::string_view name, const OnnxAttributeValue& value) {
  std::string out;
  AppendBytesField(kAttributeName, name, out);
  std::visit(AttributeEncoder{out}, value);
  return out;
}

std::string EncodeOnnxNode(const OnnxNodeText& node) {
  constexpr uint32_t kNodeName = 3;
  std::string out;
  for (const std::string& input : node.inputs) AppendBytesField(kNodeInput, input, out);
  for (const std::string& output : node.outputs) AppendBytesField(kNodeOutput, output, out);
  if (!node.name.empty()) AppendBytesField(kNodeName, node.name, out);
  AppendBytesField(kNodeOpType, node.op_type, out);
  for (const OnnxAttributeText& attribute : node.attributes)
    AppendBytesField(kNodeAttribute, EncodeOnnxAttribute(attribute.name, attribute.value), out);
  if (!node.domain.empty()) AppendBytesField(kNodeDomain, node.domain, out);
  return out;
}

// ValueInfoProto{name 1, type 2 {tensor_type 1 {elem_type 1, shape 2 {dim 1 {value 1, param 2}}}}}
std::string EncodeOnnxValueInfo(const OnnxValueInfo& info) {
  std::string shape;
  if (info.dims)
    for (const OnnxDim& dim : *info.dims) {
      std::string text;
      if (dim.value)
        AppendVarintField(1, static_cast<uint64_t>(*dim.value), text);
      else if (!dim.symbol.empty())
        AppendBytesField(2, dim.symbol, text);
      AppendBytesField(1, text, shape);
    }
  std::string tensor, type, out;
  AppendVarintField(1, static_cast<uint64_t>(info.type), tensor);
  if (info.dims) AppendBytesField(2, shape, tensor);
  AppendBytesField(1, tensor, type);
  AppendBytesField(1, info.name, out);
  AppendBytesField(2, type, out);
  return out;
}

std::string EncodeOnnxExternalTensor(const OnnxExternalTensor& tensor) {
  std::string out;
  for (const int64_t dim : tensor.dims)
    AppendVarintField(kTensorDims, static_cast<uint64_t>(dim), out);
  AppendVarintField(kTensorType, static_cast<uint64_t>(tensor.type), out);
  AppendBytesField(kTensorName, tensor.name, out);
  AppendBytesField(kTensorExternal, EncodeEntry("location", tensor.location), out);
  AppendBytesField(kTensorExternal, EncodeEntry("offset", std::to_string(tensor.offset)), out);
  AppendBytesField(kTensorExternal, EncodeEntry("length", std::to_string(tensor.length)), out);
  AppendVarintField(kTensorLocation, 1, out);
  return out;
}

}  // namespace lockstep

// The messages of onnx.proto as bytes, for writers: patches of a model (onnx_write.h) and new
// graphs (export/). Fields stand in the order of their numbers where onnx's own writers put them
// so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/onnx.h"

namespace lockstep {

// protobuf's readers take no message of 2 GiB.
inline constexpr uint64_t kMaxOnnxModelBytes = (uint64_t{1} << 31) - 1;

// A small tensor whose bytes lie in the message.
struct OnnxTensorValue {
  OnnxType type = OnnxType::kFloat;
  std::vector<int64_t> dims;     // outermost first; empty: a scalar
  std::vector<std::byte> bytes;  // little-endian
};

using OnnxAttributeValue =
    std::variant<int64_t, float, std::string, std::vector<int64_t>, OnnxTensorValue>;

struct OnnxAttributeText {
  std::string name;
  OnnxAttributeValue value;
};

struct OnnxNodeText {
  std::string op_type, domain, name;
  std::vector<std::string> inputs, outputs;  // an empty one is a slot left out
  std::vector<OnnxAttributeText> attributes;
};

// Contents of the messages, without the tag of the field that holds them.
std::string EncodeOnnxAttribute(std::string_view name, const OnnxAttributeValue& value);
std::string EncodeOnnxNode(const OnnxNodeText& node);
// A graph's input or output.
std::string EncodeOnnxValueInfo(const OnnxValueInfo& info);

// An initializer whose bytes lie in a file beside the model.
struct OnnxExternalTensor {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  std::vector<int64_t> dims;
  std::string location;
  uint64_t offset = 0, length = 0;  // in bytes
};
std::string EncodeOnnxExternalTensor(const OnnxExternalTensor& tensor);

}  // namespace lockstep

// OnnxReader: fills an OnnxModel from the bytes of its file. Field numbers are those of onnx.proto
// (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/onnx.h"
#include "formats/protobuf.h"

namespace lockstep {

inline constexpr uint32_t kModelGraph = 7;
inline constexpr uint32_t kGraphNode = 1, kGraphInitializer = 5, kGraphOutput = 12,
                          kGraphValueInfo = 13;
inline constexpr uint32_t kNodeInput = 1, kNodeOutput = 2, kNodeOpType = 4, kNodeAttribute = 5,
                          kNodeDomain = 7;
inline constexpr uint32_t kAttributeName = 1, kAttributeFloat = 2, kAttributeInt = 3,
                          kAttributeString = 4, kAttributeTensor = 5, kAttributeType = 20;
inline constexpr uint32_t kTensorDims = 1, kTensorType = 2, kTensorFloats = 4, kTensorInt32s = 5,
                          kTensorStrings = 6, kTensorInt64s = 7, kTensorName = 8, kTensorRaw = 9,
                          kTensorDoubles = 10, kTensorUInt64s = 11, kTensorExternal = 13,
                          kTensorLocation = 14;

class OnnxReader {
 public:
  OnnxReader(OnnxModel& model, std::string_view place)
      : model_(model), place_(place), bytes_(model.files_[0].bytes) {}
  Status Read();

 private:
  struct External {
    std::string location;
    uint64_t offset = 0;
    std::optional<uint64_t> length;
  };

  Status ReadGraph(ProtoReader graph);
  Status ReadNode(ProtoReader message);
  Result<OnnxAttribute> ReadAttribute(ProtoReader message);
  Result<OnnxTensor> ReadTensor(ProtoReader message, const ProtoField& at);
  Result<OnnxValueInfo> ReadValueInfo(ProtoReader message);
  Status ReadTensorType(ProtoReader message, OnnxValueInfo& out);
  Result<External> ReadExternal(const ProtoReader& tensor, const std::vector<ProtoField>& entries);
  // Index into model_.files_ of an external file, mapped once.
  Result<size_t> FileOf(const std::string& location, std::string_view tensor);
  Status AddConstant(const OnnxNode& node);

  OnnxModel& model_;
  std::string_view place_;
  std::span<const std::byte> bytes_;
  std::deque<OnnxTensor> constants_;
};

// StringStringEntryProto: key and value.
Result<std::pair<std::string, std::string>> ReadOnnxEntry(ProtoReader message);

// A path inside `folder`, links followed: `location` is relative and does not climb out.
Result<std::filesystem::path> PathInside(const std::filesystem::path& folder,
                                         std::string_view location, std::string_view place);

}  // namespace lockstep

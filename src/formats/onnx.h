// OnnxModel: an ONNX file as it lies: graph, attributes, and every initializer and constant with
// its bytes and where they are. Read by subjects (which cache has which name), by the audit of
// exports (which norm, which RoPE table, which scale) and by onnx_write.h, which changes some of it
// and leaves every other byte alone. It runs nothing and knows no operator but Constant.
//
// Files are mapped, not read. Everything was checked against the bytes that are there: spans lie in
// the files, sizes match types and shapes, names are unique, external data lies inside the folder.
// Subgraphs (If, Loop) are kept as bytes: what they read from the outer graph is not in
// ConsumersOf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lockstep {

// TensorProto.DataType of onnx.proto.
enum class OnnxType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kBFloat16 = 16,
  kUInt4 = 21,
  kInt4 = 22,
};

std::string OnnxTypeName(OnnxType type);  // "float16", "uint4"; "type 99" when it is none
// Bits of one element; 0 for strings and for types that nobody has defined.
int OnnxTypeBits(OnnxType type);

struct OnnxTensor {
  enum class Storage : uint8_t {
    kRaw,       // raw_data, in the model file
    kExternal,  // a data file beside it
    kTyped,     // float_data, int32_data, value_float, ...: `bytes` are a copy, little-endian
  };

  std::string name;  // of the initializer; of a constant: the value that its node gives
  OnnxType type = OnnxType::kUndefined;
  std::vector<int64_t> dims;  // outermost first; empty: a scalar
  int64_t elements = 0;       // the product of dims
  // Little-endian; elements below 8 bits are packed without gaps, low bits first. Empty for
  // strings.
  std::span<const std::byte> bytes;
  Storage storage = Storage::kRaw;
  size_t file = 0;             // kRaw, kExternal: of OnnxModel::files(),
  uint64_t offset = 0;         // and where in it
  std::optional<size_t> node;  // the Constant that holds it; absent for an initializer
  std::shared_ptr<const std::vector<std::byte>> owned;  // kTyped
};

// Numbers of any type of at most 64 bits but the 8-bit and 4-bit floats. int64 above 2^53 rounds.
Result<std::vector<double>> ReadDoubles(const OnnxTensor& tensor);
Result<std::vector<float>> ReadFloats(const OnnxTensor& tensor);
// Integers and booleans.
Result<std::vector<int64_t>> ReadInts(const OnnxTensor& tensor);

struct OnnxSubgraph {
  std::span<const std::byte> bytes;  // a GraphProto
};

struct OnnxAttribute {
  std::string name;
  // monostate: a kind that nothing here reads (sparse tensors, types, a function's reference).
  std::variant<std::monostate, float, int64_t, std::string, std::vector<float>,
               std::vector<int64_t>, std::vector<std::string>, std::shared_ptr<const OnnxTensor>,
               OnnxSubgraph>
      value;
};

struct OnnxNode {
  size_t index = 0;  // into OnnxModel::nodes(), which is the file's order
  std::string op_type, domain, name;
  std::vector<std::string> inputs, outputs;  // value names; an empty one is a slot left out
  std::vector<OnnxAttribute> attributes;

  const OnnxAttribute* Find(std::string_view attribute) const;  // nullptr when absent
  // Absent also when the attribute is of another kind.
  std::optional<int64_t> Int(std::string_view attribute) const;
  std::optional<float> Float(std::string_view attribute) const;
  std::optional<std::string> String(std::string_view attribute) const;
  // The name in an input's slot; empty when the node has fewer or leaves it out.
  std::string_view Input(size_t slot) const;
};

struct OnnxDim {
  std::optional<int64_t> value;
  std::string symbol;  // "batch_size"; empty when there is a value, or neither
};

// A graph input or output.
struct OnnxValueInfo {
  std::string name;
  OnnxType type = OnnxType::kUndefined;      // kUndefined: no tensor, or not said
  std::optional<std::vector<OnnxDim>> dims;  // absent: not even the rank is said
};

class OnnxModel {
 public:
  // A model.onnx, or a folder: the file that its genai_config.json names, else model.onnx, else the
  // only *.onnx in it.
  static Result<OnnxModel> Open(const std::filesystem::path& path);
  // Of bytes in memory, which must outlive the model. External data is refused.
  static Result<OnnxModel> Parse(std::span<const std::byte> bytes, std::string_view place);
  OnnxModel(OnnxModel&&) = default;
  OnnxModel& operator=(OnnxModel&&) = default;

  std::filesystem::path path() const { return path_; }  // the .onnx file
  std::filesystem::path folder() const;                 // it lies in
  int64_t ir_version() const { return ir_version_; }
  const std::string& producer_name() const { return producer_name_; }
  const std::string& producer_version() const { return producer_version_; }
  const std::map<std::string, int64_t>& opsets() const { return opsets_; }  // domain -> version
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const std::vector<OnnxValueInfo>& inputs() const { return inputs_; }  // without initializers
  const std::vector<OnnxValueInfo>& outputs() const { return outputs_; }
  const std::deque<OnnxNode>& nodes() const { return nodes_; }
  // Initializers in the file's order, then the constants in their nodes' order.
  const std::deque<OnnxTensor>& tensors() const { return tensors_; }
  size_t num_initializers() const { return num_initializers_; }

  // nullptr: nothing of this name.
  const OnnxTensor* Tensor(std::string_view name) const;  // an initializer, or a constant's value
  const OnnxNode* Producer(std::string_view value) const;
  const OnnxValueInfo* Input(std::string_view name) const;
  const OnnxValueInfo* Output(std::string_view name) const;
  // Nodes that read a value, in the file's order, each once.
  std::span<const OnnxNode* const> ConsumersOf(std::string_view value) const;

  struct File {
    std::string location;  // inside folder(), as the model writes it; files()[0]: the model itself
    std::span<const std::byte> bytes;
    std::shared_ptr<const MappedFile> mapped;  // empty after Parse
  };
  const std::vector<File>& files() const { return files_; }
  std::span<const std::byte> bytes() const { return files_[0].bytes; }

 private:
  friend class OnnxReader;
  OnnxModel() = default;
  Status Index(std::string_view place);

  std::filesystem::path path_;
  int64_t ir_version_ = 0;
  std::string producer_name_, producer_version_;
  std::map<std::string, int64_t> opsets_;
  std::map<std::string, std::string> metadata_;
  std::vector<OnnxValueInfo> inputs_, outputs_;
  std::deque<OnnxNode> nodes_;  // deques: what the maps point to stays where it is
  std::deque<OnnxTensor> tensors_;
  size_t num_initializers_ = 0;
  std::vector<File> files_;
  std::map<std::string_view, const OnnxTensor*> tensor_of_;
  std::map<std::string_view, const OnnxNode*> producer_of_;
  std::map<std::string_view, std::vector<const OnnxNode*>> consumers_of_;
};

}  // namespace lockstep

// OnnxPatch: changes to an ONNX model (values of initializers and constants, attributes, what nodes
// read, further nodes and outputs), and the writers that apply them to a copy. Every byte that no
// change concerns stays as it was: unknown fields, names, order, padding.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "formats/onnx.h"

namespace lockstep {

struct OnnxPatch {
  // A new value for an initializer or a Constant node.
  struct Tensor {
    std::string name;              // as OnnxTensor::name
    std::vector<std::byte> bytes;  // little-endian, as many as type and dims ask for
    std::optional<OnnxType> type;  // absent: as it was
    std::optional<std::vector<int64_t>> dims;
  };
  // Set, or added where the node has none of this name.
  struct Attribute {
    size_t node = 0;  // OnnxNode::index
    std::string name;
    std::variant<int64_t, float, std::string> value;
  };
  // What a node reads in a slot, and what it calls a result, from now on.
  struct Name {
    size_t node = 0;  // OnnxNode::index
    size_t slot = 0;  // one that the node has
    std::string value;
    bool operator==(const Name&) const = default;
  };
  // A node that stands behind another one in the file. A Constant has a value.
  struct Node {
    struct Value {
      OnnxType type = OnnxType::kFloat;
      std::vector<int64_t> dims;
      std::vector<std::byte> bytes;  // little-endian
    };
    size_t after = 0;  // OnnxNode::index; several keep their order
    std::string op_type, domain;
    std::vector<std::string> inputs, outputs;
    std::vector<std::pair<std::string, int64_t>> attributes;
    std::optional<Value> value;
  };
  std::vector<Tensor> tensors;
  std::vector<Attribute> attributes;
  std::vector<Name> inputs, results;
  std::vector<Node> nodes;
  std::vector<std::string> outputs;  // values that become graph outputs; those that are stay so
};

// Little-endian bytes of numbers as `type`, rounded to nearest: for patches. Fails for types that
// are no float, double, float16, bfloat16, int32 or int64.
Result<std::vector<std::byte>> EncodeNumbers(std::span<const double> numbers, OnnxType type);

// The model file with the patch in it. A patched tensor's bytes lie in it, also those that were in
// a data file; the others stay there (folder() is where the result finds them).
Result<std::string> PatchedOnnx(const OnnxModel& model, const OnnxPatch& patch);

// The model file with further outputs.
Result<std::string> WithOutputs(const OnnxModel& model, std::span<const std::string> names);

// Writes the patched model as a folder: the model file, its data files (a value of the same type
// and shape is changed where it lies), and a copy of every other file in the model's folder and its
// subfolders (unless `others` is false), but those in `texts` (name -> content), which are written
// instead: a genai_config.json. `out` must not exist; it appears complete or not at all.
Status WriteOnnx(const OnnxModel& model, const OnnxPatch& patch, const std::filesystem::path& out,
                 const std::map<std::string, std::string>& texts = {}, bool others = true);

}  // namespace lockstep

// OnnxGraph: a new ONNX graph under construction: nodes in the order of the computation, small
// constants in the model file, and initializers whose bytes are made when they are written, one
// after the other, to the data file beside it. Filled by export/genai/; the same calls give the
// same bytes.
//
// Every value has one name and one maker. An output of a node called N is "N/output_0" unless it is
// named otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "export/data_file.h"
#include "formats/onnx.h"
#include "formats/onnx_encode.h"

namespace lockstep {

struct OnnxOp {
  std::string_view type, domain;
};
// An operator of com.microsoft.
constexpr OnnxOp Microsoft(std::string_view type) { return {type, "com.microsoft"}; }
// An operator of ONNX itself.
constexpr OnnxOp Onnx(std::string_view type) { return {type, ""}; }

class OnnxGraph {
 public:
  // `floats`: the type in which this graph computes. Wherever kFloat is asked for below, in a
  // constant, an input, an output or an initializer, it becomes that, and the floats that an
  // initializer's writer appends are converted.
  explicit OnnxGraph(OnnxType floats = OnnxType::kFloat) : floats_(floats) {}
  OnnxType floats() const { return floats_; }

  using Values = std::vector<std::string>;
  using Attributes = std::vector<OnnxAttributeText>;
  // Appends exactly the initializer's bytes.
  using Writer = std::function<Status(DataFile& file)>;

  void Input(OnnxValueInfo info) { inputs_.push_back(Typed(std::move(info))); }
  void Output(OnnxValueInfo info) { outputs_.push_back(Typed(std::move(info))); }
  void Float32Output(OnnxValueInfo info) { outputs_.push_back(std::move(info)); }

  // A node with one output; its name.
  std::string Node(const std::string& name, OnnxOp op, Values inputs, Attributes attributes = {});
  // With outputs of these names; an empty one is left out.
  void NodeTo(const std::string& name, OnnxOp op, Values inputs, Values outputs,
              Attributes attributes = {});

  // Constants: one node for each number that is asked for.
  std::string Int(int64_t value);                        // a scalar
  std::string Ints(const std::vector<int64_t>& values);  // a vector
  std::string Float(float value);                        // a scalar
  std::string Float32(float value);                      // whatever floats() is
  std::string Double(double value);                      // a scalar
  std::string Doubles(const std::string& name, const std::vector<double>& values);  // a vector

  // The value called `name`; a second initializer of this name is the first one, and must be equal.
  std::string Initializer(const std::string& name, OnnxType type, std::vector<int64_t> dims,
                          Writer write);

  bool HasInitializer(const std::string& name) const { return initializer_of_.contains(name); }

  uint64_t DataBytes() const { return data_bytes_; }
  int64_t NumNodes() const { return num_nodes_; }

  // FOLDER/model.onnx and FOLDER/model.onnx.data.
  Status Write(const std::filesystem::path& folder, const ExportProgress& progress) const;

 private:
  struct Pending {
    OnnxExternalTensor tensor;
    Writer write;
  };
  OnnxValueInfo Typed(OnnxValueInfo info) const {
    if (info.type == OnnxType::kFloat) info.type = floats_;
    return info;
  }
  void Append(const OnnxNodeText& node);
  std::string Constant(const std::string& name, OnnxTensorValue value);

  OnnxType floats_;
  std::vector<OnnxValueInfo> inputs_, outputs_;
  std::string nodes_;  // NodeProtos, each with its tag
  int64_t num_nodes_ = 0;
  std::set<std::string> values_;  // that have a maker
  std::vector<Pending> initializers_;
  std::map<std::string, size_t> initializer_of_;
  uint64_t data_bytes_ = 0;
};

}  // namespace lockstep

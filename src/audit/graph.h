// Graph: an ONNX decoder as the audit walks it: nodes and values by number, who makes and who reads
// each value, and which values are constants. Made from formats/onnx.h; read by decoder.h. Names of
// nodes and tensors decide nothing: exporters choose them freely.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/onnx.h"
#include "formats/onnx_value_types.h"

namespace lockstep {

inline constexpr int kNoValue = -1;

// A constant seen through what the graph does to it before it is used (Transpose, Reshape, Split,
// a scalar added or multiplied): element (i, j, ...) is the stored element offset + i * strides[0]
// +
// ..., times factor, plus addend, in fp32.
struct ConstantView {
  int tensor = -1;  // index into OnnxModel::tensors
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  float factor = 1;
  float addend = 0;

  int64_t elements() const;
  bool operator==(const ConstantView&) const = default;
};

class Graph {
 public:
  // A node that is looked through: as if it gave what it reads in this slot.
  using Bypassed = std::map<int, size_t>;  // node -> slot

  // The model must outlive the graph. Nodes that no output of the graph depends on are as if they
  // were not there (without inputs and outputs): whatever they hold decides nothing. Likewise nodes
  // that change nothing (Identity, Dropout, a Cast to the type that is there, x + 0, x * 1): who
  // reads one reads what it reads. Slots stay those of the file, so that a patch finds its place.
  explicit Graph(const OnnxModel& model, const Bypassed& bypassed = {});

  struct Node {
    std::string_view op;       // op_type
    bool microsoft = false;    // domain com.microsoft
    std::vector<int> in, out;  // values; kNoValue where a slot is empty or absent
    int source = 0;            // index into OnnxModel::nodes
    int In(size_t slot) const { return slot < in.size() ? in[slot] : kNoValue; }
    int Out(size_t slot) const { return slot < out.size() ? out[slot] : kNoValue; }
  };

  const OnnxModel& model() const { return model_; }
  std::span<const Node> nodes() const { return nodes_; }
  const Node& node(int n) const { return nodes_[static_cast<size_t>(n)]; }
  int Producer(int value) const;  // -1: a graph input or a constant
  const std::vector<int>& Consumers(int value) const;
  int Value(std::string_view name) const;  // kNoValue when there is none
  const std::string& Name(int value) const { return names_[static_cast<size_t>(value)]; }
  bool IsInput(int value) const;
  bool IsOutput(int value) const;

  double Float(int node, std::string_view attribute, double otherwise) const;
  int64_t Int(int node, std::string_view attribute, int64_t otherwise) const;
  std::string Text(int node, std::string_view attribute, std::string_view otherwise) const;
  std::vector<int64_t> Ints(int node, std::string_view attribute) const;
  bool Has(int node, std::string_view attribute) const;

  // The value, when it follows from stored tensors alone by the operations above. Tensors without
  // elements are none.
  const std::optional<ConstantView>& Constant(int value) const;
  // The one number of a constant with one element.
  std::optional<double> Scalar(int value) const;
  // Of a constant of whole numbers; or none.
  std::vector<int64_t> Integers(int value) const;

  // n elements from `offset` on, `stride` apart, as floats before factor and addend. Whatever the
  // tensor has too few of is 0.
  void Read(int tensor, int64_t offset, int64_t stride, int64_t n, float* out) const;
  std::vector<float> Read(const ConstantView& view) const;  // row-major

 private:
  void DropDead();
  void DropNoOps(const Bypassed& bypassed);
  // The slot whose value a node hands on as it is.
  std::optional<size_t> HandsOn(int node, ValueTypes& types) const;
  std::optional<ConstantView> Fold(int node, size_t slot) const;  // of a node's output

  const OnnxModel& model_;
  std::vector<Node> nodes_;
  std::vector<std::string> names_;
  std::vector<int> producer_;
  std::vector<std::vector<int>> consumers_;
  std::vector<int> tensor_;  // of a value: index into OnnxModel::tensors, or -1
  std::vector<std::optional<ConstantView>> constants_;  // of a value
  std::vector<bool> input_, output_;
};

}  // namespace lockstep

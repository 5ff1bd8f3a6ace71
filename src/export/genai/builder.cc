#include "export/genai/builder.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

namespace lockstep::genai {

double RoundedTo(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNone:
      break;
    case Rounding::kBF16:
      return ToFloat(ToBFloat16(static_cast<float>(value)));
    case Rounding::kFP16:
      return ToFloat(ToFloat16(static_cast<float>(value)));
    case Rounding::kTwoDecimals:
      return std::nearbyint(value * 100) / 100;
  }
  return value;
}

double FactorOf(const Scale& scale) {
  const double value = RoundedTo(scale.value, scale.rounding);
  return scale.divide ? 1 / value : value;
}

void GraphBuilder::Note(std::string sentence) {
  if (std::find(notes.begin(), notes.end(), sentence) == notes.end())
    notes.push_back(std::move(sentence));
}

std::string GraphBuilder::WeightName(const std::string& node_name) {
  std::string name = node_name.substr(node_name.starts_with('/') ? 1 : 0);
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

std::string GraphBuilder::Lengths() {
  if (lengths_.empty())
    lengths_ = graph.Node("/model/attn_mask_reformat/ReduceSum", Onnx("ReduceSum"),
                          {"attention_mask", graph.Ints({1})}, {{"keepdims", int64_t{1}}});
  return lengths_;
}

std::string GraphBuilder::KeyCounts() {
  if (!key_counts_.empty()) return key_counts_;
  const std::string base = "/model/attn_mask_reformat/attn_mask_subgraph";
  const std::string sum =
      graph.Node(base + "/ReduceSum", Onnx("ReduceSum"), {"attention_mask", graph.Ints({1})},
                 {{"keepdims", int64_t{0}}});
  const std::string less = graph.Node(base + "/Sub", Onnx("Sub"), {sum, graph.Ints({1})});
  key_counts_ = Cast(base + "/Sub/Cast", less, OnnxType::kInt32);
  return key_counts_;
}

std::string GraphBuilder::TotalLength64() {
  if (!total64_.empty()) return total64_;
  const std::string base = "/model/attn_mask_reformat/attn_mask_subgraph";
  const std::string shape = graph.Node(base + "/Shape", Onnx("Shape"), {"attention_mask"});
  total64_ =
      graph.Node(base + "/Gather", Onnx("Gather"), {shape, graph.Int(1)}, {{"axis", int64_t{0}}});
  return total64_;
}

std::string GraphBuilder::TotalLength() {
  if (total_.empty())
    total_ = Cast("/model/attn_mask_reformat/attn_mask_subgraph/Gather/Cast", TotalLength64(),
                  OnnxType::kInt32);
  return total_;
}

// As GroupQueryAttention counts: the new tokens are the last of the sequence, but a padded prompt
// begins at 0.
std::string GraphBuilder::PositionIds() {
  if (!position_ids_.empty()) return position_ids_;
  const std::string base = "/model/position_ids";
  const std::string count = graph.Node(base + "/Shape", Onnx("Shape"), {"input_ids"},
                                       {{"end", int64_t{2}}, {"start", int64_t{1}}});
  const std::string past = graph.Node(base + "/Sub", Onnx("Sub"), {Lengths(), count});
  const std::string first = graph.Node(base + "/Max", Onnx("Max"), {past, graph.Int(0)});
  const std::string scalar = graph.Node(base + "/Squeeze", Onnx("Squeeze"), {count});
  const std::string range =
      graph.Node(base + "/Range", Onnx("Range"), {graph.Int(0), scalar, graph.Int(1)});
  position_ids_ = graph.Node(base + "/Add", Onnx("Add"), {first, range});
  return position_ids_;
}

std::string GraphBuilder::Floats(const std::string& name, std::vector<int64_t> dims,
                                 std::function<std::vector<float>()> make) {
  return graph.Initializer(name, OnnxType::kFloat, std::move(dims),
                           [make = std::move(make)](DataFile& file) {
                             const std::vector<float> values = make();
                             return file.AppendValues(std::span<const float>(values));
                           });
}

std::vector<float> GraphBuilder::ReadVector(Role role, int layer, Part part, int expert) const {
  const WeightView& view = weights.Get(role, layer, part, expert);
  std::vector<float> values(static_cast<size_t>(view.elements()));
  view.ReadRows(0, view.rows, values.data(), view.cols);
  return values;
}

std::string GraphBuilder::Reshape(const std::string& name, const std::string& x,
                                  const std::vector<int64_t>& shape) {
  return graph.Node(name, Onnx("Reshape"), {x, graph.Ints(shape)});
}

std::vector<std::string> GraphBuilder::Split(const std::string& name, const std::string& x,
                                             const std::vector<int64_t>& sizes, int64_t axis) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < sizes.size(); ++i) parts.push_back(fmt::format("{}/output_{}", name, i));
  graph.NodeTo(name, Onnx("Split"), {x, graph.Ints(sizes)}, parts, {{"axis", axis}});
  return parts;
}

std::string GraphBuilder::Scaled(const std::string& name, const std::string& x,
                                 const Scale& scale) {
  const auto value = static_cast<float>(RoundedTo(scale.value, scale.rounding));
  if (value == 1.0f) return x;
  return graph.Node(name + (scale.divide ? "/Div" : "/Mul"), Onnx(scale.divide ? "Div" : "Mul"),
                    {x, graph.Float(value)});
}

std::string GraphBuilder::SoftCapped(const std::string& name, const std::string& x, double cap) {
  const std::string value = graph.Float(static_cast<float>(cap));
  const std::string divided = graph.Node(name + "/softcap/Div", Onnx("Div"), {x, value});
  const std::string tanh = graph.Node(name + "/softcap/Tanh", Onnx("Tanh"), {divided});
  return graph.Node(name + "/softcap/Mul", Onnx("Mul"), {tanh, value});
}

std::string GraphBuilder::Cast(const std::string& name, const std::string& x, OnnxType type) {
  return graph.Node(name, Onnx("Cast"), {x}, {{"to", static_cast<int64_t>(type)}});
}

std::string GraphBuilder::PadHeads(const std::string& name, const std::string& x, int64_t heads,
                                   int64_t size, int64_t to) {
  if (size == to) return x;
  const std::string split = Reshape(name + "/heads", x, {0, 0, heads, size});
  const std::string padded =
      graph.Node(name + "/Pad", Onnx("Pad"), {split, graph.Ints({0, 0, 0, 0, 0, 0, 0, to - size})});
  return Reshape(name + "/joined", padded, {0, 0, heads * to});
}

std::string GraphBuilder::CutHeads(const std::string& name, const std::string& x, int64_t heads,
                                   int64_t size, int64_t to) {
  if (size == to) return x;
  const std::string split = Reshape(name + "/heads", x, {0, 0, heads, size});
  const std::vector<std::string> parts = Split(name + "/Split", split, {to, size - to});
  return Reshape(name + "/joined", parts[0], {0, 0, heads * to});
}

}  // namespace lockstep::genai

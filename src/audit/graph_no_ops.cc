// What of a graph decides nothing: nodes that hand on what they read, and nodes that no output
// depends on.
#include <algorithm>
#include <set>

#include "audit/graph.h"

namespace lockstep {
namespace {

bool OneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// What the first output has the type of the first input of.
bool KeepsType(std::string_view op) {
  return OneOf(op, {"Add",
                    "Sub",
                    "Mul",
                    "Div",
                    "Pow",
                    "Neg",
                    "Sqrt",
                    "Reciprocal",
                    "Abs",
                    "Exp",
                    "Cos",
                    "Sin",
                    "Erf",
                    "Tanh",
                    "Sigmoid",
                    "Softmax",
                    "Relu",
                    "Gelu",
                    "Clip",
                    "Identity",
                    "Reshape",
                    "Transpose",
                    "Squeeze",
                    "Unsqueeze",
                    "Flatten",
                    "Expand",
                    "Tile",
                    "Gather",
                    "Slice",
                    "Split",
                    "Concat",
                    "Dropout",
                    "MatMul",
                    "Gemm",
                    "FusedMatMul",
                    "MatMulNBits",
                    "ReduceMean",
                    "ReduceSum",
                    "LayerNormalization",
                    "SimplifiedLayerNormalization",
                    "SkipSimplifiedLayerNormalization",
                    "SkipLayerNormalization",
                    "RMSNormalization",
                    "RotaryEmbedding",
                    "GroupQueryAttention",
                    "MultiHeadAttention",
                    "Attention",
                    "FastGelu",
                    "QuickGelu",
                    "BiasGelu",
                    "MoE",
                    "QMoE"});
}

// The one number of a tensor that broadcasts to anything without giving it an axis.
std::optional<double> OneNumber(const OnnxTensor& tensor) {
  if (tensor.elements != 1 || tensor.dims.size() > 1) return std::nullopt;
  const auto numbers = ReadDoubles(tensor);
  if (!numbers || numbers->size() != 1) return std::nullopt;
  return (*numbers)[0];
}

}  // namespace

std::optional<size_t> Graph::HandsOn(int n, const std::vector<OnnxType>& types) const {
  const Node& node = this->node(n);
  if (node.In(0) == kNoValue) return std::nullopt;
  if (node.op == "Identity") return 0;
  // A ratio that is given decides only in training.
  if (node.op == "Dropout" && node.In(2) == kNoValue) return 0;
  if (node.op == "Cast") {
    const OnnxType from = types[static_cast<size_t>(node.In(0))];
    const bool same = from != OnnxType() && Int(n, "to", 0) == static_cast<int64_t>(from);
    return same ? std::optional<size_t>(0) : std::nullopt;
  }
  const bool sum = node.op == "Add" || node.op == "Sub";
  const bool product = node.op == "Mul" || node.op == "Div";
  if ((!sum && !product) || node.in.size() != 2 || node.In(1) == kNoValue) return std::nullopt;
  for (const size_t side : {size_t{1}, size_t{0}}) {
    if (side == 0 && (node.op == "Sub" || node.op == "Div")) break;
    const int tensor = tensor_[static_cast<size_t>(node.in[side])];
    const int other = node.in[1 - side];
    if (tensor < 0 || tensor_[static_cast<size_t>(other)] >= 0) continue;
    if (OneNumber(model_.tensors()[static_cast<size_t>(tensor)]) != (sum ? 0.0 : 1.0)) continue;
    // A soft cap of 1, and the scale of scores, are facts that are told by their place.
    const int maker = Producer(other);
    if (product && maker >= 0 && OneOf(this->node(maker).op, {"Tanh", "MatMul"}) &&
        (this->node(maker).op == "Tanh" ||
         tensor_[static_cast<size_t>(std::max(this->node(maker).In(1), 0))] < 0))
      continue;
    return 1 - side;
  }
  return std::nullopt;
}

void Graph::DropNoOps(const Bypassed& bypassed) {
  // The bodies of If and Loop read values by name.
  for (const OnnxNode& node : model_.nodes())
    for (const OnnxAttribute& attribute : node.attributes)
      if (std::holds_alternative<OnnxSubgraph>(attribute.value)) return;
  std::vector<OnnxType> types(names_.size());
  for (size_t v = 0; v < names_.size(); ++v)
    if (tensor_[v] >= 0) types[v] = model_.tensors()[static_cast<size_t>(tensor_[v])].type;
  for (const OnnxValueInfo& input : model_.inputs())
    if (const int v = Value(input.name); v != kNoValue) types[static_cast<size_t>(v)] = input.type;
  // A factor of 1 that stands where a model may have another: before a soft cap's tanh, before the
  // sum with the residual stream.
  std::set<int> places;
  const auto computed = [&](int v) {
    return v != kNoValue && tensor_[static_cast<size_t>(v)] < 0 &&
           !(Producer(v) >= 0 && node(Producer(v)).op == "Identity");
  };
  for (const Node& node : nodes_)
    if (node.op == "Tanh" || node.op.starts_with("Skip") ||
        (node.op == "Add" && computed(node.In(0)) && computed(node.In(1))))
      places.insert(node.in.begin(), node.in.end());
  std::vector<int> stands_for(names_.size());
  for (size_t v = 0; v < names_.size(); ++v) stands_for[v] = static_cast<int>(v);
  // A file's nodes stand behind what they read: each reads what was settled before it.
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    Node& node = nodes_[static_cast<size_t>(n)];
    for (int& in : node.in)
      if (in != kNoValue) in = stands_for[static_cast<size_t>(in)];
    const int out = node.Out(0);
    if (out == kNoValue || Producer(out) != n) continue;
    if (node.op == "Cast")
      types[static_cast<size_t>(out)] = static_cast<OnnxType>(Int(n, "to", 0));
    else if (KeepsType(node.op) && node.In(0) != kNoValue)
      for (const int each : node.out)
        if (each == out || (each != kNoValue && node.op == "Split"))
          types[static_cast<size_t>(each)] = types[static_cast<size_t>(node.In(0))];
    if (bypassed.contains(n) || IsOutput(out)) continue;
    if ((node.op == "Mul" || node.op == "Div") && places.contains(out)) continue;
    if (const auto slot = HandsOn(n, types)) stands_for[static_cast<size_t>(out)] = node.in[*slot];
  }
}

void Graph::DropDead() {
  // What the bodies of If and Loop read from outside is not known: there every node may live.
  for (const OnnxNode& node : model_.nodes())
    for (const OnnxAttribute& attribute : node.attributes)
      if (std::holds_alternative<OnnxSubgraph>(attribute.value)) return;
  std::vector<bool> lives(nodes_.size(), false);
  std::vector<int> values;
  for (size_t v = 0; v < names_.size(); ++v)
    if (output_[v]) values.push_back(static_cast<int>(v));
  while (!values.empty()) {
    const int p = Producer(values.back());
    values.pop_back();
    if (p < 0 || lives[static_cast<size_t>(p)]) continue;
    lives[static_cast<size_t>(p)] = true;
    for (const int in : node(p).in)
      if (in != kNoValue) values.push_back(in);
  }
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (lives[n] || nodes_[n].op == "Constant") continue;
    for (const int out : nodes_[n].out)
      if (out != kNoValue) producer_[static_cast<size_t>(out)] = -1;
    nodes_[n].in.clear();
    nodes_[n].out.clear();
    nodes_[n].op = {};
  }
}

}  // namespace lockstep

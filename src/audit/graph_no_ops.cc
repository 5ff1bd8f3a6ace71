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

// What the bodies of If and Loop read from outside is not known, and they read it by name.
bool HasSubgraphs(const OnnxModel& model) {
  for (const OnnxNode& node : model.nodes())
    for (const OnnxAttribute& attribute : node.attributes)
      if (std::holds_alternative<OnnxSubgraph>(attribute.value)) return true;
  return false;
}

// The one number of a tensor that broadcasts to anything without giving it an axis.
std::optional<double> OneNumber(const OnnxTensor& tensor) {
  if (tensor.elements != 1 || tensor.dims.size() > 1) return std::nullopt;
  const auto numbers = ReadDoubles(tensor);
  if (!numbers || numbers->size() != 1) return std::nullopt;
  return (*numbers)[0];
}

}  // namespace

std::optional<size_t> Graph::HandsOn(int n, ValueTypes& types) const {
  const Node& node = this->node(n);
  if (node.In(0) == kNoValue) return std::nullopt;
  if (node.op == "Identity") return 0;
  // A ratio that is given decides only in training.
  if (node.op == "Dropout" && node.In(2) == kNoValue) return 0;
  if (node.op == "Cast") {
    const OnnxType from = types.Of(Name(node.In(0)));
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
  if (HasSubgraphs(model_)) return;
  ValueTypes types(model_);
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
    if (bypassed.contains(n) || IsOutput(out)) continue;
    if ((node.op == "Mul" || node.op == "Div") && places.contains(out)) continue;
    if (const auto slot = HandsOn(n, types)) stands_for[static_cast<size_t>(out)] = node.in[*slot];
  }
}

void Graph::DropDead() {
  if (HasSubgraphs(model_)) return;  // every node may live
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

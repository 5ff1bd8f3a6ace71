#include "export/genai/norm.h"

namespace lockstep::genai {
namespace {

// weight_offset + w, added in double and rounded as the fact says: never in the checkpoint's type.
// Where the graph computes in fp32 it adds the offset itself, to the checkpoint's own number, so
// that nothing is lost to whoever takes the weight out again; a runtime folds the sum when it
// loads.
std::string Weight(GraphBuilder& b, const std::string& name, const NormSpec& norm, Role role,
                   int layer, int64_t size) {
  const std::string weight = GraphBuilder::WeightName(name) + ".weight";
  const auto offset = static_cast<float>(norm.weight_offset);
  if (norm.weight && offset != 0 && double{offset} == norm.weight_offset &&
      norm.weight_rounding == Rounding::kNone && b.graph.floats() == OnnxType::kFloat) {
    const std::string stored =
        b.Floats(weight, {size}, [&b, role, layer] { return b.ReadVector(role, layer); });
    return b.graph.Node(name + "/weight/Add", Onnx("Add"), {stored, b.graph.Float(offset)});
  }
  return b.Floats(weight, {size}, [&b, norm, role, layer, size] {
    if (!norm.weight) return std::vector<float>(static_cast<size_t>(size), 1.0f);
    std::vector<float> w = b.ReadVector(role, layer);
    for (float& x : w)
      x = static_cast<float>(
          RoundedTo(static_cast<float>(norm.weight_offset + double{x}), norm.weight_rounding));
    return w;
  });
}

OnnxGraph::Attributes Epsilon(const NormSpec& norm) {
  return {{"epsilon", static_cast<float>(norm.eps)}};
}

}  // namespace

std::string Normed(GraphBuilder& b, const std::string& name, const std::string& x,
                   const NormSpec& norm, Role role, int layer, int64_t size) {
  OnnxGraph::Attributes attributes = Epsilon(norm);
  attributes.push_back({"axis", int64_t{-1}});
  attributes.push_back({"stash_type", int64_t{1}});
  OnnxGraph::Values inputs = {x, Weight(b, name, norm, role, layer, size)};
  if (norm.kind == NormKind::kRms)
    return b.graph.Node(name, Onnx("SimplifiedLayerNormalization"), inputs, attributes);
  if (norm.bias)
    inputs.push_back(b.Floats(GraphBuilder::WeightName(name) + ".bias", {size}, [&b, role, layer] {
      return b.ReadVector(role, layer, Part::kBias);
    }));
  return b.graph.Node(name, Onnx("LayerNormalization"), inputs, attributes);
}

const std::string& Stream::Value(GraphBuilder& b) {
  if (!pending_.empty()) {
    value_ = b.graph.Node(pending_name_ + "/residual/Add", Onnx("Add"), {value_, pending_});
    pending_.clear();
  }
  return value_;
}

void Stream::Add(GraphBuilder& b, std::string y, std::string name) {
  Value(b);
  pending_ = std::move(y);
  pending_name_ = std::move(name);
}

std::string Stream::Normed(GraphBuilder& b, const std::string& name,
                           const std::optional<NormSpec>& norm, Role role, int layer) {
  if (!norm) return Value(b);
  const int64_t hidden = b.spec.embedding.hidden_size;
  if (pending_.empty() || norm->kind != NormKind::kRms)
    return genai::Normed(b, name, Value(b), *norm, role, layer, hidden);
  std::string out = name + "/output_0", sum = name + "/output_3";
  b.graph.NodeTo(name, Microsoft("SkipSimplifiedLayerNormalization"),
                 {value_, pending_, Weight(b, name, *norm, role, layer, hidden)},
                 {out, "", "", sum}, Epsilon(*norm));
  value_ = std::move(sum);
  pending_.clear();
  return out;
}

}  // namespace lockstep::genai

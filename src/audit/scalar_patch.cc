// Patches of single numbers.
#include <algorithm>
#include <cmath>

#include "audit/findings.h"
#include "base/dtype.h"

namespace lockstep {
namespace {

std::optional<OnnxPatch::Node> NewScalar(const std::string& name, OnnxType type, double value,
                                         std::vector<int64_t> dims, size_t after) {
  auto bytes = EncodeFinite(std::span(&value, 1), type);
  if (!bytes) return std::nullopt;
  return OnnxPatch::Node{.after = after,
                         .op_type = "Constant",
                         .outputs = {name},
                         .value = OnnxPatch::Node::Value{type, std::move(dims), *std::move(bytes)}};
}

}  // namespace

std::optional<std::vector<std::byte>> EncodeFinite(std::span<const double> numbers, OnnxType type) {
  const auto fits = [&](double x) {
    if (!std::isfinite(x)) return false;
    const auto single = static_cast<float>(x);
    switch (type) {
      case OnnxType::kFloat:
        return std::isfinite(single);
      case OnnxType::kFloat16:
        return std::isfinite(ToFloat(ToFloat16(single)));
      case OnnxType::kBFloat16:
        return std::isfinite(ToFloat(ToBFloat16(single)));
      case OnnxType::kInt32:
        return std::abs(x) < 0x1p31;
      case OnnxType::kInt64:
        return std::abs(x) < 0x1p63;
      default:
        return true;
    }
  };
  if (!std::all_of(numbers.begin(), numbers.end(), fits)) return std::nullopt;
  auto bytes = EncodeNumbers(numbers, type);
  return bytes ? std::optional(*std::move(bytes)) : std::nullopt;
}

bool SetScalar(const Graph& graph, int constant, int node, double value, OnnxPatch& patch) {
  const auto& view = graph.Constant(constant);
  if (!view || view->elements() != 1 || node < 0) return false;
  const auto single = static_cast<float>(value);
  const auto tensor = PatchOf(graph, *view, std::span(&single, 1));
  if (!tensor) return false;
  if (graph.Consumers(constant).size() == 1 && graph.Name(constant) == tensor->name) {
    patch.tensors.push_back(*tensor);
    return true;
  }
  const auto& at = graph.node(node);
  const auto source = static_cast<size_t>(at.source);
  if (source == 0) return false;
  const OnnxTensor& old = graph.model().tensors()[static_cast<size_t>(view->tensor)];
  const std::string name = graph.Name(at.Out(0)) + "_scale";
  auto fresh = NewScalar(name, old.type, value, view->shape, source - 1);
  if (!fresh) return false;
  patch.nodes.push_back(*std::move(fresh));
  for (size_t slot = 0; slot < at.in.size(); ++slot)
    if (at.in[slot] == constant)
      patch.inputs.push_back({.node = source, .slot = slot, .value = name});
  return true;
}

bool InsertScalar(const Graph& graph, int value, std::string_view op, double number,
                  OnnxPatch& patch) {
  const int producer = graph.Producer(value);
  if (producer < 0) return false;
  const auto& node = graph.node(producer);
  const auto source = static_cast<size_t>(node.source);
  const std::string& name = graph.Name(value);
  size_t slot = 0;
  while (slot < node.out.size() && node.out[slot] != value) ++slot;
  auto fresh = NewScalar(name + "_factor", OnnxType::kFloat, number, {}, source);
  if (!fresh || slot == node.out.size()) return false;
  patch.results.push_back({.node = source, .slot = slot, .value = name + "_before"});
  patch.nodes.push_back(*std::move(fresh));
  patch.nodes.push_back({.after = source,
                         .op_type = std::string(op),
                         .inputs = {name + "_before", name + "_factor"},
                         .outputs = {name}});
  return true;
}

}  // namespace lockstep

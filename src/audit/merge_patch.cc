#include "audit/merge_patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/quoted.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;
using Tensor = OnnxPatch::Tensor;
using Node = OnnxPatch::Node;

size_t ElementBytes(OnnxType type) {
  return std::max<size_t>(1, static_cast<size_t>(OnnxTypeBits(type)) / 8);
}

// Each element of `from` that is not as in `base` takes its place in `to`. False where `to` has
// another one there already that is not `base`'s either; `to` is then half done.
bool Overlay(std::span<const std::byte> base, const Bytes& from, size_t element, Bytes& to) {
  if (base.size() != from.size() || base.size() != to.size()) return from == to;
  for (size_t at = 0; at < base.size(); at += element) {
    const size_t n = std::min(element, base.size() - at);
    const auto same = [&](const std::byte* a, const std::byte* b) {
      return std::memcmp(a + at, b + at, n) == 0;
    };
    if (same(from.data(), base.data()) || same(from.data(), to.data())) continue;
    if (!same(to.data(), base.data())) return false;
    std::memcpy(to.data() + at, from.data() + at, n);
  }
  return true;
}

// A vector that is added: each part of a fused one has numbers where the others have zeros.
bool IsVector(const Node& node) {
  return node.value && node.value->dims.size() == 1 && node.value->dims[0] > 1;
}

bool SameNode(const Node& a, const Node& b) {
  const bool values =
      a.value.has_value() == b.value.has_value() &&
      (!a.value || (a.value->type == b.value->type && a.value->dims == b.value->dims &&
                    a.value->bytes == b.value->bytes));
  return values && a.after == b.after && a.op_type == b.op_type && a.domain == b.domain &&
         a.inputs == b.inputs && a.outputs == b.outputs && a.attributes == b.attributes;
}

class Merger {
 public:
  Merger(const OnnxModel& model, OnnxPatch& to) : model_(model), to_(to) {}

  std::optional<std::string> Add(const OnnxPatch& from) {
    for (const Tensor& tensor : from.tensors)
      if (!AddTensor(tensor)) return fmt::format("the numbers of {}", Quoted(tensor.name));
    for (const OnnxPatch::Attribute& attribute : from.attributes)
      if (!AddAttribute(attribute)) return fmt::format("the attribute {}", Quoted(attribute.name));
    for (const OnnxPatch::Name& name : from.inputs)
      if (!AddName(name, to_.inputs)) return fmt::format("what an operator reads ({})", At(name));
    for (const OnnxPatch::Name& name : from.results)
      if (!AddName(name, to_.results)) return fmt::format("a result's name ({})", At(name));
    for (const Node& node : from.nodes)
      if (!AddNode(node))
        return fmt::format("the new value {}", Quoted(node.outputs.empty() ? "" : node.outputs[0]));
    return std::nullopt;
  }

 private:
  std::string At(const OnnxPatch::Name& name) const {
    if (name.node >= model_.nodes().size()) return "no node";
    const OnnxNode& node = model_.nodes()[name.node];
    return fmt::format("{} {}, slot {}", OneLine(node.op_type, 64),
                       Quoted(node.outputs.empty() ? "" : node.outputs[0]), name.slot);
  }

  bool AddTensor(const Tensor& tensor) {
    const auto at = std::find_if(to_.tensors.begin(), to_.tensors.end(),
                                 [&](const Tensor& t) { return t.name == tensor.name; });
    if (at == to_.tensors.end()) {
      to_.tensors.push_back(tensor);
      return true;
    }
    const OnnxTensor* original = model_.Tensor(tensor.name);
    const bool reshaped = tensor.dims || tensor.type || at->dims || at->type;
    if (reshaped || original == nullptr)
      return at->dims == tensor.dims && at->type == tensor.type && at->bytes == tensor.bytes;
    return Overlay(original->bytes, tensor.bytes, ElementBytes(original->type), at->bytes);
  }

  bool AddAttribute(const OnnxPatch::Attribute& attribute) {
    for (const OnnxPatch::Attribute& other : to_.attributes)
      if (other.node == attribute.node && other.name == attribute.name)
        return other.value == attribute.value;
    to_.attributes.push_back(attribute);
    return true;
  }

  static bool AddName(const OnnxPatch::Name& name, std::vector<OnnxPatch::Name>& all) {
    for (const OnnxPatch::Name& other : all)
      if (other.node == name.node && other.slot == name.slot) return other.value == name.value;
    all.push_back(name);
    return true;
  }

  bool AddNode(const Node& node) {
    for (Node& other : to_.nodes) {
      if (other.outputs != node.outputs) continue;
      if (SameNode(other, node)) return true;
      if (!IsVector(other) || !IsVector(node) || other.value->type != node.value->type ||
          other.value->dims != node.value->dims)
        return false;
      const Bytes zeros(node.value->bytes.size());
      return Overlay(zeros, node.value->bytes, ElementBytes(node.value->type), other.value->bytes);
    }
    to_.nodes.push_back(node);
    return true;
  }

  const OnnxModel& model_;
  OnnxPatch& to_;
};

// What the merger may change beyond adding: tensors and new nodes of the same names.
struct Before {
  std::vector<std::pair<size_t, Tensor>> tensors;
  std::vector<std::pair<size_t, Node>> nodes;
  size_t num_tensors, num_attributes, num_inputs, num_results, num_nodes;
};

Before Remember(const OnnxPatch& from, const OnnxPatch& to) {
  Before before{{},
                {},
                to.tensors.size(),
                to.attributes.size(),
                to.inputs.size(),
                to.results.size(),
                to.nodes.size()};
  std::set<std::string_view> tensors, outputs;
  for (const Tensor& tensor : from.tensors) tensors.insert(tensor.name);
  for (const Node& node : from.nodes)
    if (!node.outputs.empty()) outputs.insert(node.outputs[0]);
  for (size_t i = 0; i < to.tensors.size(); ++i)
    if (tensors.contains(to.tensors[i].name)) before.tensors.emplace_back(i, to.tensors[i]);
  for (size_t i = 0; i < to.nodes.size(); ++i)
    if (!to.nodes[i].outputs.empty() && outputs.contains(to.nodes[i].outputs[0]))
      before.nodes.emplace_back(i, to.nodes[i]);
  return before;
}

void Restore(Before before, OnnxPatch& to) {
  to.tensors.resize(before.num_tensors);
  to.attributes.resize(before.num_attributes);
  to.inputs.resize(before.num_inputs);
  to.results.resize(before.num_results);
  to.nodes.resize(before.num_nodes);
  for (auto& [i, tensor] : before.tensors) to.tensors[i] = std::move(tensor);
  for (auto& [i, node] : before.nodes) to.nodes[i] = std::move(node);
}

}  // namespace

std::optional<std::string> MergePatch(const OnnxModel& model, const OnnxPatch& from,
                                      OnnxPatch& to) {
  Before before = Remember(from, to);
  auto conflict = Merger(model, to).Add(from);
  if (conflict) Restore(std::move(before), to);
  return conflict;
}

}  // namespace lockstep

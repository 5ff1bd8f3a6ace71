#include "formats/onnx_value_types.h"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

bool IsFloat(OnnxType type) {
  return type == OnnxType::kFloat || type == OnnxType::kFloat16 || type == OnnxType::kBFloat16 ||
         type == OnnxType::kDouble;
}

// What they give has a type of its own, or one that is not looked for.
bool GivesOtherTypes(std::string_view op) {
  constexpr std::string_view kOps[] = {"Shape",
                                       "Size",
                                       "NonZero",
                                       "ArgMax",
                                       "ArgMin",
                                       "Equal",
                                       "Less",
                                       "LessOrEqual",
                                       "Greater",
                                       "GreaterOrEqual",
                                       "And",
                                       "Or",
                                       "Not",
                                       "IsNaN",
                                       "IsInf",
                                       "If",
                                       "Loop",
                                       "Scan",
                                       "QuantizeLinear",
                                       "DynamicQuantizeLinear",
                                       "MatMulInteger",
                                       "ConvInteger",
                                       "OneHot"};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

}  // namespace

// Without recursion: a file may name its values in any order, and as deep as it likes.
OnnxType ValueTypes::Of(std::string_view value) {
  std::vector<std::string_view> open{value};
  while (!open.empty()) {
    const std::string_view name = open.back();
    const auto [at, fresh] = known_.try_emplace(name, OnnxType::kUndefined);
    const OnnxNode* node = model_.Producer(name);
    if (model_.Tensor(name) != nullptr || node == nullptr) {
      at->second = Stored(name);
      open.pop_back();
    } else if (fresh) {
      // Its inputs first. One that is being looked at already (a loop) stays unknown.
      for (const std::string& input : node->inputs)
        if (!input.empty() && !known_.contains(input)) open.push_back(input);
    } else {
      if (at->second == OnnxType::kUndefined) at->second = Made(*node, name);
      open.pop_back();
    }
  }
  return known_[value];
}

OnnxType ValueTypes::Stored(std::string_view value) const {
  if (const OnnxTensor* tensor = model_.Tensor(value)) return tensor->type;
  const OnnxValueInfo* input = model_.Input(value);
  return input != nullptr ? input->type : OnnxType::kUndefined;
}

// Its inputs are known. An operator gives floats of the first type of floats that it reads (of
// codes that is their scales'), else whole numbers of the first type that is no condition. Further
// outputs are other things (indices, means), but for those of Split.
OnnxType ValueTypes::Made(const OnnxNode& node, std::string_view value) const {
  const auto at = [&](size_t slot) {
    const auto known = known_.find(node.Input(slot));
    return known == known_.end() ? OnnxType::kUndefined : known->second;
  };
  if (node.op_type == "Cast") return static_cast<OnnxType>(node.Int("to").value_or(0));
  if (node.op_type == "CastLike") return at(1);
  if (node.op_type == "ConstantOfShape") {
    const OnnxAttribute* attribute = node.Find("value");
    if (attribute == nullptr) return OnnxType::kFloat;
    const auto* tensor = std::get_if<std::shared_ptr<const OnnxTensor>>(&attribute->value);
    return tensor != nullptr && *tensor ? (*tensor)->type : OnnxType::kUndefined;
  }
  if (GivesOtherTypes(node.op_type) || (node.outputs[0] != value && node.op_type != "Split"))
    return OnnxType::kUndefined;
  OnnxType first = OnnxType::kUndefined;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const OnnxType type = at(i);
    if (IsFloat(type)) return type;
    if (first == OnnxType::kUndefined && type != OnnxType::kBool) first = type;
  }
  return first;
}

}  // namespace lockstep

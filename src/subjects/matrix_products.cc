#include "subjects/matrix_products.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

bool OneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::ranges::find(ops, op) != ops.end();
}

bool IsFloat(OnnxType type) {
  return type == OnnxType::kFloat || type == OnnxType::kFloat16 || type == OnnxType::kBFloat16 ||
         type == OnnxType::kDouble;
}

// A table of frequencies that positions are multiplied by has an axis of 1.
bool IsMatrix(const OnnxTensor& tensor) {
  const size_t rank = tensor.dims.size();
  return rank >= 2 && tensor.dims[rank - 1] > 1 && tensor.dims[rank - 2] > 1;
}

// They give no floats, whatever they read.
bool GivesNoFloats(std::string_view op) {
  return OneOf(op, {"Shape",   "Size",  "NonZero",        "ArgMax",
                    "ArgMin",  "Equal", "Less",           "LessOrEqual",
                    "Greater", "And",   "GreaterOrEqual", "Or",
                    "Not",     "IsNaN", "IsInf",          "If",
                    "Loop",    "Scan",  "QuantizeLinear", "DynamicQuantizeLinear"});
}

class Types {
 public:
  explicit Types(const OnnxModel& model) : model_(model) {}

  struct Known {
    OnnxType type = OnnxType::kUndefined;  // of floats; kUndefined: none, or not known
    bool matrix = false;                   // a stored one, or one made from its codes
  };

  // Without recursion: a file may name its values in any order, and as deep as it likes.
  Known Of(std::string_view value) {
    std::vector<std::string_view> open{value};
    while (!open.empty()) {
      const std::string_view name = open.back();
      const auto [at, fresh] = known_.try_emplace(name);
      const OnnxNode* node = model_.Producer(name);
      if (model_.Tensor(name) != nullptr || node == nullptr) {
        at->second = Stored(name);
        open.pop_back();
      } else if (fresh) {
        // Its inputs first. One that is being looked at already (a loop) stays unknown.
        for (const std::string& input : node->inputs)
          if (!input.empty() && !known_.contains(input)) open.push_back(input);
      } else {
        if (at->second.type == OnnxType::kUndefined) at->second = Made(*node);
        open.pop_back();
      }
    }
    return known_[value];
  }

 private:
  Known Stored(std::string_view name) const {
    Known out;
    if (const OnnxTensor* tensor = model_.Tensor(name)) {
      out.matrix = IsMatrix(*tensor);
      if (IsFloat(tensor->type)) out.type = tensor->type;
    } else if (const OnnxValueInfo* input = model_.Input(name); input && IsFloat(input->type)) {
      out.type = input->type;
    }
    return out;
  }

  // Its inputs are known. An operator gives floats of the type that it reads first; of codes the
  // first such are their scales.
  Known Made(const OnnxNode& node) {
    Known out;
    if (node.op_type == "Cast") {
      const auto to = static_cast<OnnxType>(node.Int("to").value_or(0));
      if (IsFloat(to)) out.type = to;
    } else if (node.op_type == "CastLike") {
      out.type = At(node, 1).type;
    } else if (node.op_type == "ConstantOfShape") {
      out.type = OnnxType::kFloat;
      if (const OnnxAttribute* value = node.Find("value"))
        if (const auto* tensor = std::get_if<std::shared_ptr<const OnnxTensor>>(&value->value))
          out.type = *tensor && IsFloat((*tensor)->type) ? (*tensor)->type : OnnxType::kUndefined;
    } else if (!GivesNoFloats(node.op_type)) {
      for (size_t i = 0; i < node.inputs.size() && out.type == OnnxType::kUndefined; ++i)
        out.type = At(node, i).type;
    }
    if (OneOf(node.op_type, {"Cast", "CastLike", "Identity", "DequantizeLinear", "Transpose",
                             "Reshape", "Squeeze", "Unsqueeze", "Slice", "Split"}))
      out.matrix = At(node, 0).matrix;
    return out;
  }

  Known At(const OnnxNode& node, size_t slot) const {
    const auto at = known_.find(node.Input(slot));
    return at == known_.end() ? Known{} : at->second;
  }

  const OnnxModel& model_;
  std::map<std::string_view, Known> known_;
};

bool IsProduct(const OnnxNode& node, Types& types) {
  if (OneOf(node.op_type, {"MatMul", "Gemm", "FusedMatMul"}))
    return types.Of(node.Input(0)).matrix || types.Of(node.Input(1)).matrix;
  return OneOf(node.op_type, {"MatMulNBits", "MoE", "QMoE", "GroupQueryAttention",
                              "MultiHeadAttention", "Attention"});
}

}  // namespace

MatrixProducts MatrixProductsOf(const OnnxModel& model) {
  MatrixProducts out;
  Types types(model);
  for (const OnnxNode& node : model.nodes()) {
    if (node.outputs.empty() || !IsProduct(node, types)) continue;
    const OnnxType type = types.Of(node.outputs[0]).type;
    if (type == OnnxType::kFloat || type == OnnxType::kDouble) ++out.fp32;
    if (type == OnnxType::kFloat16) ++out.fp16;
    if (type == OnnxType::kBFloat16) ++out.bf16;
  }
  return out;
}

}  // namespace lockstep

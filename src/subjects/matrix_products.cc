#include "subjects/matrix_products.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "formats/onnx_value_types.h"

namespace lockstep {
namespace {

constexpr int kMostHops = 32;

bool OneOf(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::ranges::find(ops, op) != ops.end();
}

// A stored matrix, or one made from its codes. A table of frequencies that positions are multiplied
// by has an axis of 1.
bool IsMatrix(const OnnxModel& model, std::string_view value) {
  for (int hops = 0; hops < kMostHops; ++hops) {
    if (const OnnxTensor* tensor = model.Tensor(value)) {
      const size_t rank = tensor->dims.size();
      return rank >= 2 && tensor->dims[rank - 1] > 1 && tensor->dims[rank - 2] > 1;
    }
    const OnnxNode* node = model.Producer(value);
    if (node == nullptr ||
        !OneOf(node->op_type, {"Cast", "CastLike", "Identity", "DequantizeLinear", "Transpose",
                               "Reshape", "Squeeze", "Unsqueeze", "Slice", "Split"}))
      return false;
    value = node->Input(0);
  }
  return false;
}

bool IsProduct(const OnnxModel& model, const OnnxNode& node) {
  if (OneOf(node.op_type, {"MatMul", "Gemm", "FusedMatMul"}))
    return IsMatrix(model, node.Input(0)) || IsMatrix(model, node.Input(1));
  return OneOf(node.op_type, {"MatMulNBits", "MoE", "QMoE", "GroupQueryAttention",
                              "MultiHeadAttention", "Attention"});
}

}  // namespace

MatrixProducts MatrixProductsOf(const OnnxModel& model) {
  MatrixProducts out;
  ValueTypes types(model);
  for (const OnnxNode& node : model.nodes()) {
    if (node.outputs.empty() || !IsProduct(model, node)) continue;
    const OnnxType type = types.Of(node.outputs[0]);
    if (type == OnnxType::kFloat || type == OnnxType::kDouble) ++out.fp32;
    if (type == OnnxType::kFloat16) ++out.fp16;
    if (type == OnnxType::kBFloat16) ++out.bf16;
  }
  return out;
}

}  // namespace lockstep

#include "onnx_ops/qmoe_node.h"

#include "onnx_ops/qmoe.h"

namespace lockstep {
namespace {

std::optional<int64_t> Said(const OpCall& call, std::string_view attribute) {
  if (!HasAttribute(call, attribute)) return {};
  return IntOf(call, attribute, 0);
}

std::optional<size_t> RankOf(const OpCall& call, size_t slot) {
  const OpTensor* tensor = In(call, slot);
  if (tensor == nullptr) return {};
  return tensor->shape.size();
}

}  // namespace

QMoeNode QMoeNodeOf(const OpCall& call) {
  QMoeNode node{
      .bits = IntOf(call, "expert_weight_bits", 4),
      .block_size = Said(call, "block_size"),
      .weights_prepacked = Said(call, "weights_prepacked"),
      .normalize_routing_weights = Said(call, "normalize_routing_weights"),
      .swiglu_fusion = Said(call, "swiglu_fusion"),
      .activation = StringOf(call, "activation_type", "relu"),
      .quant_type = StringOf(call, "quant_type", "int"),
      .router_weights = In(call, kQMoeRouterWeights) != nullptr,
      .fc1_rank = RankOf(call, kQMoeFc1).value_or(3),
      .fc2_rank = RankOf(call, kQMoeFc2).value_or(3),
      .fc1_scale_rank = RankOf(call, kQMoeFc1 + 1),
      .fc2_scale_rank = RankOf(call, kQMoeFc2 + 1),
      .zero_points = In(call, kQMoeFc1Zeros) != nullptr || In(call, kQMoeFc2Zeros) != nullptr};
  if (const OpTensor* input = In(call, kQMoeInput)) {
    node.activations = input->type == OnnxType::kFloat16    ? DType::kF16
                       : input->type == OnnxType::kBFloat16 ? DType::kBF16
                                                            : DType::kF32;
    if (!input->shape.empty()) node.hidden = input->shape.back();
  }
  for (const size_t fc : {kQMoeFc1, kQMoeFc2})
    if (const OpTensor* weights = In(call, fc)) node.constant_weights &= weights->constant;
  // Tiled bytes may be shaped [E, K, N/p]; FC2 then has the inter size in the middle.
  if (const OpTensor* fc2 = In(call, kQMoeFc2);
      fc2 != nullptr && fc2->shape.size() == 3 && node.bits >= 1 && node.bits <= 8) {
    node.inter = fc2->shape[1] == node.hidden ? fc2->shape[2] * 8 / node.bits : fc2->shape[1];
  }
  return node;
}

}  // namespace lockstep

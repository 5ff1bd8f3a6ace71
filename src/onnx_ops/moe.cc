// MoE (com.microsoft): the experts of a mixture with float weights.
//
//   input        [T, H] or [B, S, H]     fc1_experts_weights  [E, F*I, H]   fc1_experts_bias  [E,
//   F*I] router_probs [T, E], logits          fc2_experts_weights  [E, H, I]     fc2_experts_bias
//   [E, H]
//
// Mixing weights: softmax over all experts, the k largest kept (of equal ones the higher index);
// divided by their sum with normalize_routing_weights=1.
#include "onnx_ops/experts.h"

namespace lockstep {
namespace {

enum Slot : uint8_t { kInput, kRouter, kFc1, kFc1Bias, kFc2, kFc2Bias, kFc3, kFc3Bias };

struct Sizes {
  int64_t experts, hidden, inter, fc1_rows, tokens;
};

// After CheckMoe.
Sizes SizesOf(const OpCall& call) {
  const Shape& fc2 = In(call, kFc2)->shape;
  return {.experts = fc2[0],
          .hidden = fc2[1],
          .inter = fc2[2],
          .fc1_rows = fc2[2] * ExpertActivationOf(call).factor(),
          .tokens = In(call, kRouter)->shape[0]};
}

ExpertMatrix MatrixOf(const OpCall& call, size_t weights, size_t bias, int64_t rows, int64_t cols) {
  ExpertMatrix matrix{.rows = rows, .cols = cols, .bias = {}, .int8_block = {}, .weights = {}};
  if (const OpTensor* b = In(call, bias)) matrix.bias = FloatsOf(*b);
  const OpTensor* tensor = In(call, weights);
  matrix.weights = [tensor, rows, cols](int64_t expert) {
    OpTensor one{.type = tensor->type, .shape = {rows, cols}, .bytes = {}, .constant = true};
    const auto bytes = tensor->bytes.size() / static_cast<size_t>(tensor->shape[0]);
    one.bytes = tensor->bytes.subspan(bytes * static_cast<size_t>(expert), bytes);
    return FloatsOf(one);
  };
  return matrix;
}

}  // namespace

Refusal CheckMoe(const OpCall& call) {
  LS_REFUSE(CheckExpertAttributes(call));
  const Shape& input = In(call, kInput)->shape;
  const Shape& router = In(call, kRouter)->shape;
  const Shape& fc1 = In(call, kFc1)->shape;
  const Shape& fc2 = In(call, kFc2)->shape;
  if (In(call, kFc3) != nullptr || In(call, kFc3Bias) != nullptr)
    return RunFails(call, OrtError::kNotImplemented,
                    "fc3_experts_weights is given, which the CPU does not know; put gate and up "
                    "into FC1, interleaved");
  if (input.size() != 2 && input.size() != 3)
    return BadArgument(call, "input has the shape {}, expected [T, H] or [B, S, H]",
                       ShapeText(input));
  if (router.size() != 2)
    return BadArgument(call, "router_probs has the shape {}, expected [T, E]", ShapeText(router));
  if (fc1.size() != 3 || fc2.size() != 3)
    return BadArgument(call,
                       "the experts' weights have the shapes {} and {}, expected 3 dimensions "
                       "each",
                       ShapeText(fc1), ShapeText(fc2));
  const int64_t hidden = input.back(), experts = fc1[0];
  const int64_t tokens = ElementsOf({input.begin(), input.end() - 1});
  const int64_t factor = ExpertActivationOf(call).factor();
  // ONNX Runtime also takes [E, H, F*I] and [E, I, H], and reads their bytes as if not transposed.
  if (fc2[1] != fc2[2] && fc2[1] != hidden && fc2[2] == hidden)
    return Unsafe(call, "the bytes are read as [E, H, I] without transposing: garbage",
                  "fc2_experts_weights has the shape {}, which is [E, I, H]; transpose it to "
                  "[E, H, I]",
                  ShapeText(fc2));
  const int64_t inter = fc2[2];
  if (fc1[1] == hidden && fc1[2] == factor * inter && fc1[1] != fc1[2])
    return Unsafe(call, "the bytes are read as [E, F*I, H] without transposing: garbage",
                  "fc1_experts_weights has the shape {}, which is [E, H, F*I]; transpose it",
                  ShapeText(fc1));
  LS_REFUSE(HasShape(call, kFc1, "fc1_experts_weights", {experts, factor * inter, hidden}));
  LS_REFUSE(HasShape(call, kFc2, "fc2_experts_weights", {experts, hidden, inter}));
  LS_REFUSE(HasShape(call, kRouter, "router_probs", {tokens, experts}));
  LS_REFUSE(HasShape(call, kFc1Bias, "fc1_experts_bias", {experts, factor * inter}));
  LS_REFUSE(HasShape(call, kFc2Bias, "fc2_experts_bias", {experts, hidden}));
  if (experts < 1 || hidden < 1 || inter < 1)
    return BadArgument(call, "a size is 0: {} experts, hidden {}, inter {}", experts, hidden,
                       inter);
  if (const int64_t k = IntOf(call, "k", 1); k > experts)
    return RunFails(call, OrtError::kFail, "k is {}, but there are {} experts; run at most those",
                    k, experts);
  return {};
}

Result<OpResults> RunMoe(const OpCall& call, const OpOptions& options) {
  const Sizes n = SizesOf(call);
  const ExpertRouting routing{.k = IntOf(call, "k", 1),
                              .rule = IntOf(call, "normalize_routing_weights", 0) != 0
                                          ? ExpertRouting::Rule::kSoftmaxOfChosen
                                          : ExpertRouting::Rule::kSoftmaxOfAll};
  const auto mix = MixExperts(routing, FloatsOf(*In(call, kRouter)), {}, n.experts);
  const auto y = RunExperts(FloatsOf(*In(call, kInput)), mix, n.experts,
                            MatrixOf(call, kFc1, kFc1Bias, n.fc1_rows, n.hidden),
                            MatrixOf(call, kFc2, kFc2Bias, n.hidden, n.inter),
                            ExpertActivationOf(call), options.pool);
  OpResults results;
  results.emplace_back(ValueOf(In(call, kInput)->type, In(call, kInput)->shape, y));
  return results;
}

}  // namespace lockstep

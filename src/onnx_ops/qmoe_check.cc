// What a QMoE node must look like, and the ways in which ONNX Runtime 1.32 goes wrong without
// saying so. Expected shapes: qmoe.cc.
#include "base/quoted.h"
#include "onnx_ops/qmoe.h"
#include "onnx_ops/qmoe_node.h"
#include "quant/code_bits.h"
#include "quant/sm80_tiles.h"

namespace lockstep {
namespace {

int64_t BitsOf(const OpCall& call) {
  const int64_t bits = IntOf(call, "expert_weight_bits", 4);
  const int64_t fc1 = IntOf(call, "fc1_expert_weight_bits", bits);
  return fc1 == IntOf(call, "fc2_expert_weight_bits", bits) ? fc1 : bits;
}

Refusal CheckAttributes(const OpCall& call) {
  const int64_t block = IntOf(call, "block_size", 0);
  if (block < 0 || (block > 0 && !IsBlockSize(block)))
    return LoadFails(call,
                     "block_size is {}, expected a power of two of at least 16 (or no "
                     "attribute: per channel); choose one",
                     block);
  const int64_t bits = IntOf(call, "expert_weight_bits", 4);
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    return LoadFails(call, "expert_weight_bits is {}, expected 2, 3, 4 or 8; choose one", bits);
  const int64_t prepacked = IntOf(call, "weights_prepacked", -1);
  if (prepacked < -1 || prepacked > 1)
    return LoadFails(call, "weights_prepacked is {}, expected -1 or 0 (raw) or 1 (SM80 tiles)",
                     prepacked);
  if (bits == 3 && prepacked != 0)
    return LoadFails(
        call, "codes of 3 bits need weights_prepacked=0, found {}; write the attribute", prepacked);
  return {};
}

// The raw 3-bit profile and the tiled one, which the shared kernel runs.
Refusal CheckSharedProfile(const OpCall& call, int64_t bits, bool tiled) {
  const int64_t block = IntOf(call, "block_size", 0);
  const OnnxType type = In(call, kQMoeInput)->type;
  if (bits != 3 && !tiled) {
    if (type == OnnxType::kBFloat16)
      return LoadFails(call,
                       "bfloat16 needs weights_prepacked=1 on the CPU, found raw weights; tile "
                       "them, or use float16 or float");
    return {};
  }
  if (StringOf(call, "activation_type", "relu") != "swiglu" ||
      IntOf(call, "use_sparse_mixer", 0) != 0)
    return LoadFails(call,
                     "{} needs interleaved swiglu without the sparse mixer; use raw weights of "
                     "another width",
                     tiled ? "weights_prepacked=1" : "3 bits");
  if (block != 32 && block != 64 && block != 128)
    return LoadFails(call, "{} needs a block_size of 32, 64 or 128, found {}; choose one",
                     tiled ? "weights_prepacked=1" : "3 bits", block);
  if (In(call, kQMoeFc1Zeros) != nullptr || In(call, kQMoeFc2Zeros) != nullptr)
    return LoadFails(call,
                     "{} takes no zero points; quantize symmetrically, or leave the weights "
                     "raw",
                     tiled ? "weights_prepacked=1" : "3 bits");
  if (bits == 3 && type == OnnxType::kFloat)
    return LoadFails(call,
                     "3 bits need float16 or bfloat16 activations, found float; convert them");
  return {};
}

// What the runtime takes and gets wrong, by the policy's table.
Refusal CheckDangers(const OpCall& call) {
  for (const QMoeDanger* danger : QMoeDangersOf(QMoeNodeOf(call), ExecutionProvider::kCpu))
    if (danger->broken)
      return Unsafe(call, std::string(danger->happens), "{} ({}); {}", danger->what, danger->id,
                    danger->do_instead);
  return {};
}

Refusal CheckRanks(const OpCall& call) {
  for (const auto& [slot, name] : {std::pair{kQMoeFc1, "fc1"}, std::pair{kQMoeFc2, "fc2"}})
    if (const Shape& shape = In(call, slot)->shape; shape.size() != 3)
      return BadArgument(call,
                         "{}_experts_weights has the shape {}, expected 3 dimensions; write "
                         "[E, N, K*bits/8]",
                         name, ShapeText(shape));
  return {};
}

// [E, N, K*bits/8]; tiled bytes may also be shaped [E, K, N*bits/8], as genai writes them.
Refusal CheckWeights(const OpCall& call, size_t fc, std::string_view name, int64_t rows,
                     int64_t cols, const QMoeLayout& layout) {
  const Shape& shape = In(call, fc)->shape;
  if (layout.tiled && shape == Shape{layout.experts, cols, PackedBytes(rows, layout.bits)})
    return {};
  return HasShape(call, fc, name, {layout.experts, rows, PackedBytes(cols, layout.bits)});
}

Refusal CheckMatrix(const OpCall& call, size_t fc, size_t zeros, int64_t rows, int64_t cols,
                    const QMoeLayout& layout) {
  const std::string name = fc == kQMoeFc1 ? "fc1" : "fc2";
  LS_REFUSE(CheckWeights(call, fc, name + "_experts_weights", rows, cols, layout));
  const Shape& scales = In(call, fc + 1)->shape;
  const bool rank3 = scales.size() == 3;
  if (layout.block > 0)
    LS_REFUSE(HasShape(call, fc + 1, name + "_scales",
                       {layout.experts, rows, CeilDiv(cols, layout.block)}));
  else if (rank3)
    LS_REFUSE(HasShape(call, fc + 1, name + "_scales", {layout.experts, rows, 1}));
  else
    LS_REFUSE(HasShape(call, fc + 1, name + "_scales", {layout.experts, rows}));
  LS_REFUSE(HasShape(call, fc + 2, name + "_experts_bias", {layout.experts, rows}));
  if (layout.block > 0)
    LS_REFUSE(
        HasShape(call, zeros, name + "_zero_points",
                 {layout.experts, rows, PackedBytes(CeilDiv(cols, layout.block), layout.bits)}));
  else
    LS_REFUSE(HasShape(call, zeros, name + "_zero_points",
                       {layout.experts, PackedBytes(rows, layout.bits)}));
  if (layout.tiled) {
    if (const auto status = CheckSm80Shape(rows, cols, layout.bits); !status)
      return RunFails(call, OrtError::kFail, "{}: {}", name, status.error().message);
  }
  return {};
}

}  // namespace

QMoeLayout QMoeLayoutOf(const OpCall& call) {
  const Shape& input = In(call, kQMoeInput)->shape;
  const Shape& fc2 = In(call, kQMoeFc2)->shape;
  QMoeLayout layout{.bits = static_cast<int>(BitsOf(call)),
                    .block = IntOf(call, "block_size", 0),
                    .tiled = IntOf(call, "weights_prepacked", -1) == 1,
                    .experts = In(call, kQMoeFc1)->shape[0],
                    .hidden = input.back(),
                    .inter = fc2[2] * 8 / BitsOf(call),
                    .fc1_rows = 0,
                    .tokens = ElementsOf({input.begin(), input.end() - 1})};
  // Tiled and shaped [E, K, N*bits/8].
  if (layout.tiled && fc2[1] != layout.hidden) layout.inter = fc2[1];
  layout.fc1_rows = layout.inter * ExpertActivationOf(call).factor();
  return layout;
}

Refusal CheckQMoe(const OpCall& call) {
  LS_REFUSE(CheckDangers(call));
  LS_REFUSE(CheckExpertAttributes(call));
  LS_REFUSE(CheckAttributes(call));
  const int64_t bits = IntOf(call, "expert_weight_bits", 4);
  LS_REFUSE(CheckSharedProfile(call, bits, IntOf(call, "weights_prepacked", -1) == 1));
  LS_REFUSE(CheckRanks(call));
  for (size_t slot = kQMoeFc3; slot < kQMoeFc3 + 3u; ++slot)
    if (In(call, slot) != nullptr || In(call, kQMoeFc3Zeros) != nullptr)
      return RunFails(call, OrtError::kNotImplemented,
                      "FC3 is given, which the CPU does not know; put gate and up into FC1, "
                      "interleaved");
  const int64_t fc1_bits = IntOf(call, "fc1_expert_weight_bits", bits);
  const int64_t fc2_bits = IntOf(call, "fc2_expert_weight_bits", bits);
  if (fc1_bits != fc2_bits || fc1_bits != bits)
    return RunFails(call, OrtError::kNotImplemented,
                    "FC1 has {} bits, FC2 {} and expert_weight_bits is {}, but the CPU takes one "
                    "width; quantize both alike",
                    fc1_bits, fc2_bits, bits);
  const Shape& input = In(call, kQMoeInput)->shape;
  const Shape& router = In(call, kQMoeRouter)->shape;
  if (input.size() != 2 && input.size() != 3)
    return BadArgument(call, "input has the shape {}, expected [T, H] or [B, S, H]",
                       ShapeText(input));
  if (router.size() != 2)
    return BadArgument(call, "router_probs has the shape {}, expected [T, E]", ShapeText(router));
  const QMoeLayout layout = QMoeLayoutOf(call);
  if (layout.experts < 1 || layout.hidden < 1 || layout.inter < 1)
    return BadArgument(call, "a size is 0: {} experts, hidden {}, inter {}", layout.experts,
                       layout.hidden, layout.inter);
  if (layout.hidden * layout.bits % 8 != 0 || layout.inter * layout.bits % 8 != 0)
    return BadArgument(call, "hidden {} or inter {} does not fill whole bytes with {} bits; pad it",
                       layout.hidden, layout.inter, layout.bits);
  LS_REFUSE(HasShape(call, kQMoeRouter, "router_probs", {layout.tokens, layout.experts}));
  LS_REFUSE(CheckMatrix(call, kQMoeFc1, kQMoeFc1Zeros, layout.fc1_rows, layout.hidden, layout));
  LS_REFUSE(CheckMatrix(call, kQMoeFc2, kQMoeFc2Zeros, layout.hidden, layout.inter, layout));
  LS_REFUSE(HasShape(call, kQMoeRouterWeights, "router_weights", {layout.tokens, layout.experts}));
  if (const int64_t k = IntOf(call, "k", 1); k > layout.experts)
    return RunFails(call, OrtError::kFail, "k is {}, but there are {} experts; run at most those",
                    k, layout.experts);
  return {};
}

}  // namespace lockstep

#include "formats/ort_int8.h"

namespace lockstep {
namespace {

bool IsConstant(const OnnxModel& model, std::string_view name) {
  const OnnxNode* producer = model.Producer(name);
  return name.empty() || model.Tensor(name) != nullptr ||
         (producer != nullptr && producer->op_type == "Constant");
}

}  // namespace

bool MatMulNBitsRoundsInput(const Int8Facts& facts) {
  return facts.accuracy_level == 4 && facts.constant && !facts.float_zeros &&
         (facts.bits != 2 || (facts.block >= 32 && facts.block <= 128));
}

bool QMoeRoundsInput(const Int8Facts& facts) {
  const bool asked = facts.bits == 8 || (facts.bits == 4 && facts.accuracy_level == 4);
  return asked && facts.constant && facts.block > 0 && facts.columns % facts.block == 0;
}

bool RoundsInputToInt8(const OnnxModel& model, const OnnxNode& node) {
  Int8Facts facts{.block = node.Int("block_size").value_or(0),
                  .accuracy_level = node.Int("accuracy_level").value_or(0)};
  if (node.op_type == "MatMulNBits") {
    facts.bits = node.Int("bits").value_or(4);
    facts.columns = node.Int("K").value_or(0);
    facts.constant = IsConstant(model, node.Input(1));
    const OnnxTensor* zeros = model.Tensor(node.Input(3));
    facts.float_zeros = zeros != nullptr && zeros->type != OnnxType::kUInt8;
    return MatMulNBitsRoundsInput(facts);
  }
  if (node.op_type != "QMoE") return false;
  facts.bits = node.Int("expert_weight_bits").value_or(4);
  if (facts.bits < 1 || facts.bits > 8) return false;
  for (const size_t slot : {2, 5}) {  // codes [experts, rows, columns * bits / 8], scales behind
    const OnnxTensor* codes = model.Tensor(node.Input(slot));
    if (codes == nullptr || codes->dims.size() != 3 || codes->dims[2] > (int64_t{1} << 40))
      continue;
    facts.columns = codes->dims[2] * 8 / facts.bits;
    facts.constant = IsConstant(model, node.Input(slot + 1)) &&
                     IsConstant(model, node.Input(slot == 2 ? 11 : 12));
    if (QMoeRoundsInput(facts)) return true;
  }
  return false;
}

}  // namespace lockstep

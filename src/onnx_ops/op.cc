#include "onnx_ops/op.h"

#include <algorithm>

#include "base/quoted.h"
#include "onnx_ops/operators.h"

namespace lockstep {
namespace {

// clang-format off
constexpr OpSlot kQMoeSlots[] = {
    {"input", "f h b", 'T', true},
    {"router_probs", "f h b", 'T', true},
    {"fc1_experts_weights", "u8", 'W', true},
    {"fc1_scales", "f h b", 'S'},
    {"fc1_experts_bias", "f h b", 'T'},
    {"fc2_experts_weights", "u8", 'W', true},
    {"fc2_scales", "f h b", 'S'},
    {"fc2_experts_bias", "f h b", 'T'},
    {"fc3_experts_weights", "u8", 'W'},
    {"fc3_scales", "f h b", 'S'},
    {"fc3_experts_bias", "f h b", 'T'},
    {"fc1_zero_points", "u8", 'W'},
    {"fc2_zero_points", "u8", 'W'},
    {"fc3_zero_points", "u8", 'W'},
    {"router_weights", "f h b", 'T'},
};
constexpr OpSlot kMoeSlots[] = {
    {"input", "f h b", 'T', true},
    {"router_probs", "f h b", 'T', true},
    {"fc1_experts_weights", "f h b", 'T', true},
    {"fc1_experts_bias", "f h b", 'T'},
    {"fc2_experts_weights", "f h b", 'T', true},
    {"fc2_experts_bias", "f h b", 'T'},
    {"fc3_experts_weights", "f h b", 'T'},
    {"fc3_experts_bias", "f h b", 'T'},
};
constexpr OpSlot kMatMulNBitsSlots[] = {
    {"A", "f h b", 'T', true},
    {"B", "u8 i32", 0, true},
    {"scales", "f h b", 'T', true},
    {"zero_points", "u8 f h b"},
    {"g_idx", "i32"},
    {"bias", "f h b", 'T'},
};
constexpr OpSlot kAttentionSlots[] = {
    {"query", "f h b", 'T', true},
    {"key", "f h b", 'T'},
    {"value", "f h b", 'T'},
    {"past_key", "f h b u8 i8", 'C'},
    {"past_value", "f h b u8 i8", 'C'},
    {"seqlens_k", "i32", 0, true},
    {"total_sequence_length", "i32", 0, true},
    {"cos_cache", "f h b", 'T'},
    {"sin_cache", "f h b", 'T'},
    {"position_ids", "i64"},
    {"attention_bias", "f h b", 'T'},
    {"head_sink", "f h b", 'T'},
    {"k_scale", "f"},
    {"v_scale", "f"},
    {"q_norm_weight", "f h b", 'T'},
    {"k_norm_weight", "f h b", 'T'},
    {"query_seqlens", "i32"},
};
constexpr OpSlot kRotarySlots[] = {
    {"input", "f h b", 'T', true},
    {"position_ids", "i64", 0, true},
    {"cos_cache", "f h b", 'T', true},
    {"sin_cache", "f h b", 'T', true},
};
constexpr OpSlot kRotary23Slots[] = {
    {"X", "f h b", 'T', true},
    {"cos_cache", "f h b", 'T', true},
    {"sin_cache", "f h b", 'T', true},
    {"position_ids", "i64"},
};
constexpr OpSlot kGatherSlots[] = {
    {"data", "u8 u4 i4", 'D', true},
    {"indices", "i32 i64", 0, true},
    {"scales", "f h b", 0, true},
    {"zero_points", "u8 u4 i4", 'D'},
};
constexpr OpSlot kNormSlots[] = {
    {"X", "f h b d", 0, true},
    {"scale", "f h b d", 0, true},
};
constexpr OpSlot kSkipNormSlots[] = {
    {"input", "f h b d", 'T', true},
    {"skip", "f h b d", 'T', true},
    {"gamma", "f h b d", 'T', true},
    {"bias", "f h b d", 'T'},
};

constexpr std::string_view kMs = "com.microsoft";
constexpr Operator kOperators[] = {
    {"GatherBlockQuantized",             kMs, kGatherSlots,      1, CheckGatherBlockQuantized,    RunGatherBlockQuantized},
    {"GroupQueryAttention",              kMs, kAttentionSlots,   4, CheckGroupQueryAttention,     RunGroupQueryAttention},
    {"MatMulNBits",                      kMs, kMatMulNBitsSlots, 1, CheckMatMulNBits,             RunMatMulNBits},
    {"MoE",                              kMs, kMoeSlots,         1, CheckMoe,                     RunMoe},
    {"QMoE",                             kMs, kQMoeSlots,        1, CheckQMoe,                    RunQMoe},
    {"RotaryEmbedding",                  kMs, kRotarySlots,      1, CheckRotaryEmbedding,         RunRotaryEmbedding},
    {"RotaryEmbedding",                  "",  kRotary23Slots,    1, CheckRotaryEmbedding,         RunRotaryEmbedding},
    {"SimplifiedLayerNormalization",     "",  kNormSlots,        2, CheckSimplifiedLayerNorm,     RunSimplifiedLayerNorm},
    {"SkipSimplifiedLayerNormalization", kMs, kSkipNormSlots,    4, CheckSkipSimplifiedLayerNorm, RunSkipSimplifiedLayerNorm},
};
// clang-format on

const Operator* FindOperator(const OpCall& call) {
  const auto* it = std::find_if(
      std::begin(kOperators), std::end(kOperators),
      [&](const Operator& one) { return one.op == call.op && one.domain == call.domain; });
  return it == std::end(kOperators) ? nullptr : it;
}

std::string_view Letter(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return "f";
    case OnnxType::kFloat16:
      return "h";
    case OnnxType::kBFloat16:
      return "b";
    case OnnxType::kDouble:
      return "d";
    case OnnxType::kUInt8:
      return "u8";
    case OnnxType::kInt8:
      return "i8";
    case OnnxType::kInt32:
      return "i32";
    case OnnxType::kInt64:
      return "i64";
    case OnnxType::kUInt4:
      return "u4";
    case OnnxType::kInt4:
      return "i4";
    default:
      return "";
  }
}

bool Allowed(std::string_view types, OnnxType type) {
  const std::string_view letter = Letter(type);
  if (letter.empty()) return false;
  for (size_t at = 0; at <= types.size();) {
    const size_t end = std::min(types.find(' ', at), types.size());
    if (types.substr(at, end - at) == letter) return true;
    at = end + 1;
  }
  return false;
}

std::string TypesText(std::string_view types) {
  std::string text;
  for (const OnnxType type :
       {OnnxType::kFloat, OnnxType::kFloat16, OnnxType::kBFloat16, OnnxType::kDouble,
        OnnxType::kUInt8, OnnxType::kInt8, OnnxType::kInt32, OnnxType::kInt64, OnnxType::kUInt4,
        OnnxType::kInt4})
    if (Allowed(types, type)) text += (text.empty() ? "" : ", ") + OnnxTypeName(type);
  return text;
}

// No operand holds more elements; a shape that says so lies.
constexpr int64_t kMaxElements = int64_t{1} << 40;

Refusal CheckOperand(const OpCall& call, std::string_view name, const OpTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t dim : tensor.shape) {
    if (dim < 0 || (dim > 0 && elements > kMaxElements / dim))
      return NotCovered(call, "{} has the shape {}, whose size no memory holds; mend the shape",
                        name, ShapeText(tensor.shape));
    elements *= dim;
  }
  const int64_t bits = elements * OnnxTypeBits(tensor.type);
  if (KnownValues(tensor) && CeilDiv(bits, 8) != static_cast<int64_t>(tensor.bytes.size()))
    return NotCovered(call, "{} has {} bytes, but its shape {} of {} takes {}; give as many", name,
                      tensor.bytes.size(), ShapeText(tensor.shape), OnnxTypeName(tensor.type),
                      CeilDiv(bits, 8));
  return {};
}

// Sizes first (they are about memory), then types in the order of the slots, as the runtime's own
// graph check does.
Refusal CheckOperands(const OpCall& call, const Operator& op) {
  for (size_t slot = 0; slot < call.inputs.size(); ++slot) {
    if (!call.inputs[slot]) continue;
    if (slot >= op.slots.size())
      return NotCovered(call,
                        "there is an operand in slot {}, but only the slots below {} are "
                        "covered; leave it out",
                        slot, op.slots.size());
    LS_REFUSE(CheckOperand(call, op.slots[slot].name, *call.inputs[slot]));
  }
  std::map<char, std::pair<std::string_view, OnnxType>> bound;
  for (size_t slot = 0; slot < op.slots.size(); ++slot) {
    const OpSlot& row = op.slots[slot];
    const OpTensor* tensor = In(call, slot);
    if (tensor == nullptr) {
      if (row.required)
        return LoadFails(call, "{} (slot {}) is left out, but the operator needs it; give it",
                         row.name, slot);
      continue;
    }
    if (!Allowed(row.types, tensor->type))
      return MakeRefusal(call, OpRefusal::Kind::kLoad, OrtError::kInvalidGraph, "",
                         fmt::format("{} is {}, expected one of {}; convert it", row.name,
                                     OnnxTypeName(tensor->type), TypesText(row.types)));
    if (row.parameter == 0) continue;
    const auto [it, fresh] = bound.try_emplace(row.parameter, row.name, tensor->type);
    if (!fresh && it->second.second != tensor->type)
      return LoadFails(call, "{} is {} but {} is {}, and the two must share a type; convert one",
                       row.name, OnnxTypeName(tensor->type), it->second.first,
                       OnnxTypeName(it->second.second));
  }
  return {};
}

// The kind that an attribute must have wherever its name is used.
Refusal CheckAttributes(const OpCall& call) {
  static constexpr std::string_view kFloats[] = {
      "epsilon", "scale", "softcap", "activation_alpha", "activation_beta", "swiglu_limit"};
  static constexpr std::string_view kStrings[] = {"activation_type", "quant_type", "k_quant_type",
                                                  "v_quant_type"};
  for (const auto& [name, value] : call.attributes) {
    const bool as_float =
        std::find(std::begin(kFloats), std::end(kFloats), name) != std::end(kFloats);
    const bool as_string =
        std::find(std::begin(kStrings), std::end(kStrings), name) != std::end(kStrings);
    const size_t expected = as_float ? 1 : as_string ? 2 : 0;
    if (value.index() != expected)
      return LoadFails(call, "attribute {} is {}, expected {}; write it as one", Quoted(name),
                       value.index() == 0   ? "an integer"
                       : value.index() == 1 ? "a float"
                                            : "a string",
                       expected == 0   ? "an integer"
                       : expected == 1 ? "a float"
                                       : "a string");
  }
  return {};
}

}  // namespace

std::string_view OrtErrorName(OrtError error) {
  switch (error) {
    case OrtError::kFail:
      return "FAIL";
    case OrtError::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case OrtError::kInvalidGraph:
      return "INVALID_GRAPH";
    case OrtError::kNotImplemented:
      return "NOT_IMPLEMENTED";
    case OrtError::kRuntimeException:
      return "RUNTIME_EXCEPTION";
  }
  return "";
}

std::vector<std::string> KnownOps() {
  std::vector<std::string> names;
  for (const Operator& op : kOperators)
    names.push_back(fmt::format("{}:{}", op.domain.empty() ? "ai.onnx" : op.domain, op.op));
  return names;
}

OpTensor OperandOf(const OnnxTensor& initializer) {
  return {.type = initializer.type,
          .shape = initializer.dims,
          .bytes = initializer.bytes,
          .constant = true};
}

OpCall CallOf(const OnnxNode& node,
              const std::function<std::optional<OpTensor>(std::string_view)>& operand) {
  OpCall call{.op = node.op_type,
              .domain = node.domain == "ai.onnx" ? "" : node.domain,
              .name = node.name,
              .attributes = {},
              .inputs = {},
              .outputs = {}};
  for (const OnnxAttribute& attribute : node.attributes) {
    if (const auto* i = std::get_if<int64_t>(&attribute.value))
      call.attributes[attribute.name] = *i;
    if (const auto* f = std::get_if<float>(&attribute.value)) call.attributes[attribute.name] = *f;
    if (const auto* s = std::get_if<std::string>(&attribute.value))
      call.attributes[attribute.name] = *s;
  }
  for (const std::string& input : node.inputs)
    call.inputs.push_back(input.empty() ? std::nullopt : operand(input));
  for (const std::string& output : node.outputs) call.outputs.push_back(!output.empty());
  return call;
}

std::optional<OpRefusal> FindRefusal(const OpCall& call) {
  const Operator* op = FindOperator(call);
  if (op == nullptr) {
    std::string known;
    for (const std::string& one : KnownOps()) known += (known.empty() ? "" : ", ") + one;
    const bool elsewhere = std::any_of(std::begin(kOperators), std::end(kOperators),
                                       [&](const Operator& one) { return one.op == call.op; });
    if (elsewhere)
      return LoadFails(call, "the domain {} has no such operator; the known ones are {}",
                       Quoted(call.domain), known);
    return NotCovered(call, "the operator {}:{} is unknown here; the known ones are {}",
                      Quoted(call.domain), Quoted(call.op), known);
  }
  LS_REFUSE(CheckOperands(call, *op));
  LS_REFUSE(CheckAttributes(call));
  for (size_t slot = 0; slot < call.outputs.size(); ++slot)
    if (call.outputs[slot] && slot >= static_cast<size_t>(op->outputs))
      return LoadFails(call, "output {} is asked for, but there are {}; leave it out", slot,
                       op->outputs);
  return op->check(call);
}

Status CheckOp(const OpCall& call) {
  const auto refusal = FindRefusal(call);
  if (!refusal) return {};
  switch (refusal->kind) {
    case OpRefusal::Kind::kLoad:
      return InputError("{} (ONNX Runtime 1.32 on the CPU does not load the model: {})",
                        refusal->sentence, OrtErrorName(refusal->error));
    case OpRefusal::Kind::kRun:
      return InputError("{} (ONNX Runtime 1.32 on the CPU fails at the first run: {})",
                        refusal->sentence, OrtErrorName(refusal->error));
    case OpRefusal::Kind::kUnsafe:
      return InputError("{} (ONNX Runtime 1.32 on the CPU accepts it: {})", refusal->sentence,
                        refusal->danger);
    case OpRefusal::Kind::kNotCovered:
      break;
  }
  return UnsupportedError("{}", refusal->sentence);
}

Result<std::vector<std::optional<OpValue>>> RunOp(const OpCall& call, const OpOptions& options) {
  LS_RETURN_IF_ERROR(CheckOp(call));
  const Operator* op = FindOperator(call);
  for (size_t slot = 0; slot < call.inputs.size(); ++slot)
    if (call.inputs[slot] && !KnownValues(*call.inputs[slot]))
      return UsageError("{}: {} has no values, and a run needs them; give its bytes", PlaceOf(call),
                        op->slots[slot].name);
  LS_TRY(auto results, op->run(call, options));
  return results;
}

}  // namespace lockstep

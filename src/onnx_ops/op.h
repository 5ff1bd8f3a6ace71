// OpCall: one node of an ONNX graph with its operands, for the operators that ONNX Runtime keeps
// outside the standard and that decoders are exported to (QMoE, MoE, MatMulNBits,
// GroupQueryAttention, RotaryEmbedding, GatherBlockQuantized, SimplifiedLayerNormalization,
// SkipSimplifiedLayerNormalization). Exporters ask CheckOp before they write a node; tests and the
// reference ask RunOp what it computes.
//
// The definition is what ONNX Runtime 1.32's CPU execution provider does (docs/onnx_ops.md), but
// for inputs that it mishandles (a crash, garbage, a flag silently ignored): those are refused, and
// the sentence says what would have happened. Arithmetic is float with double accumulators and one
// rounding to the output's type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/onnx.h"

namespace lockstep {

// An operand. Never owns.
struct OpTensor {
  OnnxType type = OnnxType::kUndefined;
  std::vector<int64_t> shape;  // outermost first; empty: a scalar
  // Little-endian, elements below 8 bits packed without gaps, low bits first. Empty for an operand
  // whose values are not known yet: CheckOp then checks types and shapes only, RunOp refuses.
  std::span<const std::byte> bytes;
  bool constant = false;  // an initializer; ONNX Runtime prepacks those and treats them otherwise
};

using OpAttribute = std::variant<int64_t, float, std::string>;

struct OpCall {
  std::string op, domain;  // "MatMulNBits", "com.microsoft"; the domain of ai.onnx is empty
  std::string name;        // the node's, for messages
  std::map<std::string, OpAttribute, std::less<>> attributes;
  std::vector<std::optional<OpTensor>> inputs;  // by slot
  std::vector<bool> outputs{true};              // by slot: wanted
};

// The call that a node makes; `operand` gives what is known of a value (of an initializer:
// everything).
OpCall CallOf(const OnnxNode& node,
              const std::function<std::optional<OpTensor>(std::string_view)>& operand);
OpTensor OperandOf(const OnnxTensor& initializer);

// What ONNX Runtime answers to a call that it does not run, by the words of its own errors.
enum class OrtError : uint8_t {
  kFail,
  kInvalidArgument,
  kInvalidGraph,
  kNotImplemented,
  kRuntimeException,
};
std::string_view OrtErrorName(OrtError error);  // "INVALID_ARGUMENT"

struct OpRefusal {
  enum class Kind : uint8_t {
    kLoad,        // the model does not load
    kRun,         // the first run fails
    kUnsafe,      // accepted, and wrong: `danger` says how
    kNotCovered,  // the runtime may well run it; this implementation does not
  };
  Kind kind = Kind::kLoad;
  OrtError error = OrtError::kFail;  // of kLoad and kRun
  std::string danger;                // "crash (SIGSEGV)"; of kUnsafe
  std::string sentence;              // place, expected, found, what to do
};

// Absent: the call is sound, as far as types, shapes and the values that are there tell.
std::optional<OpRefusal> FindRefusal(const OpCall& call);
// The same as a status: the sentence, and in brackets what the runtime would have done.
Status CheckOp(const OpCall& call);

struct OpOptions {
  // Round activations to 8 bits where the runtime does (accuracy_level 4; 8-bit block-wise
  // experts).
  bool int8_activations = true;
  ThreadPool* pool = nullptr;  // results do not depend on it
};

struct OpValue {
  OnnxType type = OnnxType::kUndefined;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

// By output slot; absent where it was not wanted. Elements that the operator leaves unspecified
// (rows of padding) are zero.
Result<std::vector<std::optional<OpValue>>> RunOp(const OpCall& call,
                                                  const OpOptions& options = {});

// The operators that there are, as "domain:op".
std::vector<std::string> KnownOps();

}  // namespace lockstep

// The table of operators behind op.h, one row and one file each, and what their files share: words
// for refusals, and operands as numbers. Inside this folder only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_ops/op.h"

namespace lockstep {

using Refusal = std::optional<OpRefusal>;
using OpResults = std::vector<std::optional<OpValue>>;

// Types of the operator's schema. Slots with one letter share a type.
struct OpSlot {
  std::string_view name;
  std::string_view types;  // "f h b d u8 i8 i32 i64 u4 i4", by blanks
  char parameter = 0;      // 0: bound to no other slot
  bool required = false;
};

struct Operator {
  std::string_view op, domain;
  std::span<const OpSlot> slots;
  int outputs;
  Refusal (*check)(const OpCall& call);  // after the slots' types were checked
  Result<OpResults> (*run)(const OpCall& call, const OpOptions& options);  // after check
};

Refusal CheckQMoe(const OpCall& call);
Refusal CheckMoe(const OpCall& call);
Refusal CheckMatMulNBits(const OpCall& call);
Refusal CheckGroupQueryAttention(const OpCall& call);
Refusal CheckRotaryEmbedding(const OpCall& call);
Refusal CheckGatherBlockQuantized(const OpCall& call);
Refusal CheckSimplifiedLayerNorm(const OpCall& call);
Refusal CheckSkipSimplifiedLayerNorm(const OpCall& call);
Result<OpResults> RunQMoe(const OpCall& call, const OpOptions& options);
Result<OpResults> RunMoe(const OpCall& call, const OpOptions& options);
Result<OpResults> RunMatMulNBits(const OpCall& call, const OpOptions& options);
Result<OpResults> RunGroupQueryAttention(const OpCall& call, const OpOptions& options);
Result<OpResults> RunRotaryEmbedding(const OpCall& call, const OpOptions& options);
Result<OpResults> RunGatherBlockQuantized(const OpCall& call, const OpOptions& options);
Result<OpResults> RunSimplifiedLayerNorm(const OpCall& call, const OpOptions& options);
Result<OpResults> RunSkipSimplifiedLayerNorm(const OpCall& call, const OpOptions& options);

// `node "n" (QMoE)`.
std::string PlaceOf(const OpCall& call);
OpRefusal MakeRefusal(const OpCall& call, OpRefusal::Kind kind, OrtError error, std::string danger,
                      const std::string& sentence);

template <typename... Args>
Refusal LoadFails(const OpCall& call, fmt::format_string<Args...> format, Args&&... args) {
  return MakeRefusal(call, OpRefusal::Kind::kLoad, OrtError::kFail, "",
                     fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Refusal RunFails(const OpCall& call, OrtError error, fmt::format_string<Args...> format,
                 Args&&... args) {
  return MakeRefusal(call, OpRefusal::Kind::kRun, error, "",
                     fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Refusal BadArgument(const OpCall& call, fmt::format_string<Args...> format, Args&&... args) {
  return RunFails(call, OrtError::kInvalidArgument, format, std::forward<Args>(args)...);
}
template <typename... Args>
Refusal Unsafe(const OpCall& call, std::string danger, fmt::format_string<Args...> format,
               Args&&... args) {
  return MakeRefusal(call, OpRefusal::Kind::kUnsafe, OrtError::kFail, std::move(danger),
                     fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Refusal NotCovered(const OpCall& call, fmt::format_string<Args...> format, Args&&... args) {
  return MakeRefusal(call, OpRefusal::Kind::kNotCovered, OrtError::kFail, "",
                     fmt::format(format, std::forward<Args>(args)...));
}

// Reading a call. Attributes of another kind than asked for were refused before a check runs.
const OpTensor* In(const OpCall& call, size_t slot);  // nullptr: left out
int64_t IntOf(const OpCall& call, std::string_view attribute, int64_t otherwise);
float FloatOf(const OpCall& call, std::string_view attribute, float otherwise);
std::string StringOf(const OpCall& call, std::string_view attribute, std::string_view otherwise);
bool HasAttribute(const OpCall& call, std::string_view attribute);
bool Wanted(const OpCall& call, size_t output);

using Shape = std::vector<int64_t>;
std::string ShapeText(const Shape& shape);  // "[4, 64]"
int64_t ElementsOf(const Shape& shape);     // the operands' were checked not to overflow
bool KnownValues(const OpTensor& tensor);
// The operand in `slot`, if it is there, has this shape; else INVALID_ARGUMENT at run.
Refusal HasShape(const OpCall& call, size_t slot, std::string_view name, const Shape& expected);

// For operators whose CPU kernels are for float and float16.
Refusal NoBFloat16(const OpCall& call);

std::vector<float> FloatsOf(const OpTensor& tensor);
std::vector<double> DoublesOf(const OpTensor& tensor);
std::vector<int64_t> IntegersOf(const OpTensor& tensor);
std::span<const uint8_t> BytesOf(const OpTensor& tensor);

OpValue ValueOf(OnnxType type, Shape shape, std::span<const float> values);
// x as the type stores it, as a float again.
float RoundTo(OnnxType type, float x);

// Calls fn(i) for i in [0, n), on the pool's threads if there is one.
void ForEach(ThreadPool* pool, size_t n, const std::function<void(size_t)>& fn);

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline bool IsBlockSize(int64_t x) { return x >= 16 && (x & (x - 1)) == 0; }

// sum of a[i] * b[i], in double.
double Dot(const float* a, const float* b, int64_t n);

// What accuracy_level 4 does to a row of activations: each run of `block` elements becomes signed
// codes, code = round(x / (max|x| / 127)), and is used as code * (max|x| / 127). The last run may
// be shorter.
void RoundToInt8(std::span<float> row, int64_t block);

}  // namespace lockstep

// LS_REFUSE(HasShape(...));  returns the refusal if there is one.
#define LS_REFUSE(expression)                              \
  do {                                                     \
    if (auto ls_refusal = (expression)) return ls_refusal; \
  } while (false)

#include "audit/storage.h"

#include <algorithm>
#include <cmath>

#include "reference/ops.h"
#include "spec/field_list.h"

namespace lockstep {
namespace {

constexpr double kSameFactor = 2e-6;  // relative: a number that went through fp32

}  // namespace

Rounding RoundingOf(OnnxType type) {
  if (type == OnnxType::kFloat16) return Rounding::kFP16;
  return type == OnnxType::kBFloat16 ? Rounding::kBF16 : Rounding::kNone;
}

Rounding StorageOf(const Graph& graph, const ConstantView& view) {
  if (view.tensor < 0) return Rounding::kNone;
  return RoundingOf(graph.model().tensors()[static_cast<size_t>(view.tensor)].type);
}

Rounding StorageOf(const Graph& graph, int constant) {
  if (constant == kNoValue) return Rounding::kNone;
  const auto& view = graph.Constant(constant);
  return view ? StorageOf(graph, *view) : Rounding::kNone;
}

Rounding StorageOf(const Graph& graph, const FoundDecoder& found, const WeightId& id) {
  const WeightPlace place = PlaceOf(found, id);
  if (place.vector != nullptr) return StorageOf(graph, *place.vector);
  return place.matrix != nullptr ? StorageOf(graph, place.matrix->values) : Rounding::kNone;
}

double StepOf(double size, Rounding storage) {
  if (storage != Rounding::kFP16 && storage != Rounding::kBF16) return 0;
  // fp16: 11 bits down to 2^-14, below that multiples of 2^-24; bf16: 8 bits, as far as fp32 goes.
  const bool half = storage == Rounding::kFP16;
  const int exponent = size == 0 ? -126 : std::ilogb(size);
  return std::ldexp(1.0, half ? std::max(exponent, -14) - 10 : std::max(exponent, -126) - 7);
}

bool Same(double a, double b) {
  return std::abs(a - b) <= kSameFactor * std::max(std::abs(a), std::abs(b));
}

bool SameAsStored(double expected, double found, Rounding storage) {
  return Same(expected, found) ||
         (storage != Rounding::kNone && Same(Rounded(expected, storage), found));
}

std::string_view StorageName(Rounding storage) {
  return storage == Rounding::kNone ? "fp32" : NameOf(storage);
}

}  // namespace lockstep

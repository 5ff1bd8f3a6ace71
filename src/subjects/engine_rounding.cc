#include "subjects/engine_rounding.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "subjects/dither.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 32;  // numbers that share a scale
constexpr float kInt8Steps = 127, kQ16Steps = 8191;

// Every kBlock numbers to multiples of a `steps`-th of their largest.
void ToCodes(std::span<float> x, float steps, uint32_t draw) {
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const auto block = x.subspan(begin, std::min(kBlock, x.size() - begin));
    float largest = 0;
    for (const float e : block) largest = std::max(largest, std::abs(e));
    if (largest == 0) continue;
    for (size_t i = 0; i < block.size(); ++i)
      block[i] = std::nearbyint(block[i] * (steps / largest) + Dither(block[i], begin + i, draw)) *
                 (largest / steps);
  }
}

void ToBF16(std::span<float> x, uint32_t draw) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = ToFloat(ToBFloat16(x[i] * (1 + Dither(x[i], i, draw) * 0x1p-8f)));
}

void ToF16(std::span<float> x, uint32_t draw) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = ToFloat(ToFloat16(x[i] * (1 + Dither(x[i], i, draw) * 0x1p-11f)));
}

// Each head of each row by itself.
template <typename Fn>
void ForHeads(size_t dim, MatrixView<float> rows, const Fn& fn) {
  for (size_t t = 0; t < rows.rows; ++t)
    for (size_t at = 0; at < rows.cols; at += dim) fn(rows.row(t).subspan(at, dim));
}

}  // namespace

void EngineRounding::Input(const WeightView& weight, bool head, std::span<const int64_t>,
                           MatrixView<float> rows) const {
  const Activations form = FormFor(activations_, ChoosePackedKind(weight));
  if (form == Activations::kF32) return;
  for (size_t t = 0; t < rows.rows; ++t) {
    const std::span<float> x = rows.row(t);
    if (form == Activations::kBF16) {
      ToBF16(x, draw_);
      continue;
    }
    // In front of the head a second row of codes holds what the first left over.
    std::vector<float> rest(x.begin(), x.end());
    ToCodes(x, kInt8Steps, draw_);
    if (!head) continue;
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= x[i];
    ToCodes(rest, kInt8Steps, draw_);
    for (size_t i = 0; i < rest.size(); ++i) x[i] += rest[i];
  }
}

void EngineRounding::Queries(size_t dim, MatrixView<float> rows) const {
  ForHeads(dim, rows, [&](std::span<float> head) {
    if (kv_ == KvType::kBF16) ToBF16(head, draw_);
    if (kv_ == KvType::kQ16) ToCodes(head, kQ16Steps, draw_);
  });
}

void EngineRounding::Keys(size_t dim, MatrixView<float> rows) const {
  ForHeads(dim, rows, [&](std::span<float> head) {
    if (kv_ == KvType::kF16) ToF16(head, draw_);
    if (kv_ == KvType::kBF16) ToBF16(head, draw_);
    if (kv_ == KvType::kQ16) ToCodes(head, kQ16Steps, draw_);
    if (kv_ == KvType::kQ8) ToCodes(head, kInt8Steps, draw_);
  });
}

void EngineRounding::Values(size_t dim, MatrixView<float> rows) const {
  ForHeads(dim, rows, [&](std::span<float> head) {
    if (kv_ == KvType::kF16) ToF16(head, draw_);
    if (kv_ == KvType::kBF16 || kv_ == KvType::kQ16) ToBF16(head, draw_);
    if (kv_ == KvType::kQ8) ToCodes(head, kInt8Steps, draw_);
  });
}

void EngineRounding::AttentionWeights(std::span<float> weights) const {
  if (kv_ == KvType::kBF16 || kv_ == KvType::kQ16) ToBF16(weights, draw_);
}

Precision PrecisionOf(const ExecutionPlan& plan, Activations activations, KvType kv) {
  Precision precision = kv == KvType::kF32 ? Precision::kFull : Precision::kRounded;
  ForEachProjection(plan, [&](std::string_view, const Projection& projection, double) {
    for (const PackedMatrix& m : projection.group.matrices) {
      const Activations form = FormFor(activations, m.kind);
      if (form == Activations::kInt8) precision = Precision::kQuantizedActivations;
      if (form == Activations::kBF16) precision = std::max(precision, Precision::kRounded);
    }
  });
  return precision;
}

}  // namespace lockstep

// EngineRounding: what the engine rounds, said once more in plain loops for the reference to do:
// inputs of matrices as int8 codes or bf16, keys and values as the cache keeps them. It shares no
// code with the kernels, so that it judges them (docs/numerics.md, "Precision verdicts").
#pragma once

#include "engine/engine.h"
#include "reference/rounder.h"
#include "verify/subject.h"

namespace lockstep {

class EngineRounding : public Rounder<float> {
 public:
  // draw 0 rounds to nearest; any other number moves each value by up to half a step first, its own
  // way: rounding that falls elsewhere, and is up to twice as large.
  EngineRounding(Activations activations, KvType kv, uint32_t draw = 0)
      : activations_(activations), kv_(kv), draw_(draw) {}

  void Input(const WeightView& weight, bool head, std::span<const int64_t> positions,
             MatrixView<float> rows) const override;
  void Queries(size_t dim, MatrixView<float> rows) const override;
  void Keys(size_t dim, MatrixView<float> rows) const override;
  void Values(size_t dim, MatrixView<float> rows) const override;
  void AttentionWeights(std::span<float> weights) const override;

 private:
  Activations activations_;
  KvType kv_;
  uint32_t draw_;
};

// Which of its precisions an engine has: by what its plan's matrices read, and its cache.
Precision PrecisionOf(const ExecutionPlan& plan, Activations activations, KvType kv);

}  // namespace lockstep

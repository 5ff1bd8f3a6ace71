// The reference with the candidate's own weights: its codes dequantized, its rounded numbers as
// they are. What still differs then is no matter of precision. And the rounding of activations that
// some of its operators do, for the reference to do as well.
#pragma once

#include <map>
#include <memory>

#include "audit/audit.h"
#include "reference/rounder.h"

namespace lockstep {

// Rounds what the named matrices multiply as onnxruntime's CPU kernels do: per row and block of
// columns, scale = max|a| / 127, codes to nearest (com.microsoft MatMulNBits with accuracy_level 4,
// and QMoE's int8 paths; measured: agrees to 8e-7).
class BlockInt8Rounder : public Rounder<float> {
 public:
  // By where the matrix lies (WeightView::data).
  std::map<const std::byte*, int64_t> blocks;

  bool empty() const { return blocks.empty(); }
  void Input(const WeightView& weight, bool head, MatrixView<float> rows) const override;
  void Queries(size_t, MatrixView<float>) const override {}
  void Keys(size_t, MatrixView<float>) const override {}
  void Values(size_t, MatrixView<float>) const override {}
  void AttentionWeights(std::span<float>) const override {}
};

struct CandidateWeights {
  Model model;  // keeps its weights alive; the reference's checkpoint must outlive it as well
  BlockInt8Rounder rounder;
  int64_t replaced = 0;  // matrices that are the candidate's
};

// Only what the audit calls quantized is taken over, and what is kept in 16 bits: a fault in a
// weight stays a fault, and so does a number that was rounded on its way into fp32.
Result<CandidateWeights> WithWeightsOf(const Model& reference, const OnnxModel& candidate,
                                       const AuditReport& report);

}  // namespace lockstep

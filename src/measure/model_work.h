// ModelWork: what one token costs: the multiplications of its matrices and the bytes that the
// engine reads for them. Divided by a time it is a speed that can be held against the machine's
// peaks.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "measure/machine_peaks.h"

namespace lockstep {

struct MatrixWork {
  double int8_macs = 0;  // of matrices that are stored as codes, where activations are int8
  double bf16_macs = 0;  // of bf16 matrices, where activations are bf16
  double f32_macs = 0;
  double bytes = 0;  // as the engine packs them

  // Operations (a multiplication and its addition are two) and the least seconds that they take.
  double ops() const { return 2 * (int8_macs + bf16_macs + f32_macs); }
  double SecondsAtPeak(const MachinePeaks& peaks) const {
    return 2 * int8_macs / peaks.int8_ops + 2 * bf16_macs / peaks.bf16_ops +
           2 * f32_macs / peaks.f32_ops;
  }
};

// Matrices alone: attention's own products, norms and the rows of the embedding are left out. Of
// experts those that a token chooses count.
struct ModelWork {
  MatrixWork layers;  // once per token
  MatrixWork head;    // once per row of logits
  bool experts = false;

  MatrixWork Of(int64_t tokens, int64_t logits) const;
};

ModelWork WorkOf(const ExecutionPlan& plan, Activations activations);

}  // namespace lockstep

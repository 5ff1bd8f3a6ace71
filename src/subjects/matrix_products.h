// MatrixProducts: in which types a graph multiplies its activations by matrices, and attends. Read
// off the types of values, as they follow from the stored tensors and the graph's inputs. It is
// what says whether a graph computes in 16 bits; used by sixteen_bits.h.
#pragma once

#include <cstdint>

#include "formats/onnx.h"

namespace lockstep {

struct MatrixProducts {
  int64_t fp32 = 0, fp16 = 0, bf16 = 0;
};

// Operators that read a stored matrix (what only turns positions into angles is none), and those
// that attend. A product whose type does not follow from the file counts as none.
MatrixProducts MatrixProductsOf(const OnnxModel& model);

}  // namespace lockstep

// Which of ONNX Runtime's CPU operators round their input to int8 codes, one scale for each block
// of weights: the one place that says so, for whoever computes, audits or describes a graph.
// Measured on ONNX Runtime 1.32 (tests/golden/ort-ops).
#pragma once

#include <cstdint>

#include "formats/onnx.h"

namespace lockstep {

struct Int8Facts {
  int64_t bits = 4;   // of a weight
  int64_t block = 0;  // weights under a scale; 0: a whole row
  int64_t columns = 0;
  int64_t accuracy_level = 0;
  bool constant = true;      // weights, scales and zero points are initializers, so prepacked
  bool float_zeros = false;  // the zero points are numbers of the input's type
};

// accuracy_level 4, unless the zero points are floats.
bool MatMulNBitsRoundsInput(const Int8Facts& facts);

// Whole blocks alone: of 8 bits at any accuracy_level, of 4 bits at level 4.
bool QMoeRoundsInput(const Int8Facts& facts);

// Of a node as it stands in a model; false for other operators. A QMoE rounds where either of its
// matrices does.
bool RoundsInputToInt8(const OnnxModel& model, const OnnxNode& node);

}  // namespace lockstep

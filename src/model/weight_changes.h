// What each WeightChange does to the numbers of one weight (faults/edit.h says what it stands for).
#pragma once

#include <cstdint>
#include <vector>

#include "faults/edit.h"
#include "spec/model_spec.h"

namespace lockstep {

// One weight as floats, row after row.
struct Dense {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;  // [rows, cols]
};

// Of the changes that concern one weight (all but kZero, kSwap, kTake, kFit, kInterleave,
// kDeinterleave), in place; never fails for a weight: a count that does not divide it leaves the
// rest alone.
void Change(const WeightEdit& edit, const LayerSpec* layer, Dense& weight);

// The elements repeated, or cut, to rows * cols.
Dense Fitted(const Dense& weight, int64_t rows, int64_t cols);

// Rows of both, of equal shape: a0 b0 a1 b1 ... cut in the middle, or the inverse.
void Interleave(Dense& a, Dense& b);
void Deinterleave(Dense& a, Dense& b);

}  // namespace lockstep

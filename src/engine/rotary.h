// Rotary tables of the engine: cos and sin per position for each kind of RoPE that a plan uses.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model_spec.h"

namespace lockstep {

// cos and sin of positions [first, first + count), each [count][rotary_dim / 2]. `length` is what
// the sequence will hold after the call: dynamic RoPE and longrope ask it.
struct RotaryTable {
  std::vector<float> cos, sin;
  int64_t half = 0;
  void Fill(const RopeSpec& rope, int64_t first, int64_t count, int64_t length);
};

// Turns one head in place; row: position within the table.
void Rotate(const RotaryTable& table, RopeLayout layout, int64_t row, float* head);

}  // namespace lockstep

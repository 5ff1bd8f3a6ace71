// Rotary tables of the engine: cos and sin of the rows of a walk, for each kind of RoPE that a plan
// uses.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/model_spec.h"

namespace lockstep {

class RotaryTable {
 public:
  explicit RotaryTable(const RopeSpec& rope);

  const RopeSpec& rope() const { return rope_; }
  // The angles follow from what the sequence will hold after the call (dynamic RoPE, longrope).
  bool follows_length() const { return follows_length_; }
  // Room for `rows` rows.
  void Reserve(int64_t rows);
  // Rows [row, row + count) <- positions [first, first + count) of a sequence that will hold
  // `length`. Distinct rows may be filled by distinct threads unless follows_length().
  void Fill(int64_t row, int64_t first, int64_t count, int64_t length);
  const float* Cos(int64_t row) const { return cos_.data() + row * half_; }
  const float* Sin(int64_t row) const { return sin_.data() + row * half_; }
  int64_t half() const { return half_; }

 private:
  RopeSpec rope_;
  bool follows_length_;
  int64_t half_, length_ = 0;
  float amplitude_ = 1;
  std::vector<float> inverse_;  // frequencies, of `length_` where they follow it
  std::vector<float> cos_, sin_;
};

}  // namespace lockstep

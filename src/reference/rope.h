// RoPE: rotary position embedding and its scalings, as transformers' modeling_rope_utils.py defines
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/matrix_view.h"
#include "spec/model_spec.h"

namespace lockstep {

// inv_freq [rotary_dim / 2] in fp32, for a sequence of `length` positions (dynamic and longrope
// ask).
std::vector<float> InverseFrequencies(const RopeSpec& rope, int64_t length);

// The factor on cos and sin (YaRN, longrope; 1 otherwise).
double RopeAttentionFactor(const RopeSpec& rope);

// cos and sin of one call's positions, [count, rotary_dim / 2], computed in fp32 whatever T is, as
// transformers does for every dtype.
struct RopeTable {
  std::vector<float> cos, sin;
  int64_t half = 0;
  RopeTable(const RopeSpec& rope, int64_t first, int64_t count, int64_t length);
};

// Turns the first rotary_dim elements of each of `num_heads` heads of every row, in place.
// rows: [count, num_heads * head_dim]; `skip` elements of each head come before the rotary part
// (MLA).
template <typename T>
void ApplyRope(const RopeTable& table, RopeLayout layout, int64_t num_heads, int64_t head_dim,
               int64_t skip, MatrixView<T> rows);

}  // namespace lockstep

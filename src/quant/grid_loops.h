// The loops over a run of weights in which a quantizer spends its time (grid.cc), eight elements at
// once. The codes of a run at 1/scale = inverse are q + zero, q = clamp(round(x * inverse), low,
// high), ties to even; |x * inverse| < 2^22. The same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::grid {

struct Sums {
  double xq = 0, qq = 0;  // sum x q, sum q^2
};
Sums SumsAt(const float* x, size_t n, float inverse, float low, float high);
// The same, each element counting w[i] times.
Sums WeightedSumsAt(const float* x, const float* w, size_t n, float inverse, float low, float high);
void CodesAt(const float* x, size_t n, float inverse, float low, float high, float zero,
             uint8_t* codes);
// sum (x - (code - zero) * scale)^2.
double ErrorAt(const float* x, const uint8_t* codes, size_t n, float scale, float zero);
// The least and the largest of x and 0.
void RangeOf(const float* x, size_t n, float* low, float* high);

}  // namespace lockstep::grid

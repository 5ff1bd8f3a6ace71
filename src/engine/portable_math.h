// exp and log that give the same bits on every machine, for sampling.
// Only + - * /, comparisons and exact scaling by powers of two are used, each correctly rounded by
// IEEE 754, and the build forbids fusing them (-ffp-contract=off). The C library's exp and log
// differ between systems in the last bit, enough to change a draw that falls on an edge.
#pragma once

#include <span>

namespace lockstep {

double PortableExp(double x);  // relative error below 1e-15; 0 below -745, infinity above 709
// out[i] = PortableExp(scores[i] - max), for scores up to max: several at a time, the same bits.
void PortableExps(std::span<const float> scores, double max, double* out);
double PortableLog(double x);  // x > 0; relative error below 1e-15 away from 1, absolute near it

}  // namespace lockstep

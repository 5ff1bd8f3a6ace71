// MachinePeaks: what this machine can do at most, measured in about a second, so that a speed can
// be told as a share of it. Knows neither kernels nor models.
#pragma once

#include <string_view>

namespace lockstep {

struct MachinePeaks {
  int threads = 0;
  // All threads sum a buffer that no cache holds; the best of several passes.
  double read_bytes = 0;  // per second
  // Loops of nothing but the best instruction that the processor has, in 12 independent chains; a
  // multiplication and its addition are two operations. The best of several runs.
  double int8_ops = 0;  // per second
  double f32_ops = 0;
  double bf16_ops = 0;  // of two bf16 into one fp32; fp32's where the processor has none
  std::string_view int8_how, f32_how, bf16_how;  // "AVX-512 VNNI, 64 products in one instruction"
};

MachinePeaks MeasureMachinePeaks(int threads);

}  // namespace lockstep

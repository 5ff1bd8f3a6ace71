// WeightScan: reads every weight once and counts what no trained model holds: NaN, infinity,
// matrices of nothing but zeros. Where `inspect` gets its numbers from.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/tensor_info.h"

namespace lockstep {

struct WeightStatistics {
  int64_t nan = 0, infinite = 0;
  float lowest = 0, highest = 0;  // of the finite elements; 0 when there are none
  double sum_of_squares = 0;      // of the finite elements
  int64_t finite = 0;

  double rms() const;
  bool damaged() const { return nan > 0 || infinite > 0; }
};

// One entry for each tensor, in order. Integer tensors (codes, masks) are left at zero counts.
// `go_on` is called between pieces of work with the share done; false stops early.
std::vector<WeightStatistics> ScanWeights(std::span<const TensorInfo> tensors, ThreadPool& pool,
                                          const std::function<bool(double)>& go_on);

}  // namespace lockstep

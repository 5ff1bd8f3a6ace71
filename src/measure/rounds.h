// Rounds: one thing measured several times, told as its median and how far the rounds lay apart.
#pragma once

#include <vector>

namespace lockstep {

struct Spread {
  double median = 0, min = 0, max = 0;
};

// Of at least one value. The median of an even number of values is the mean of the middle two.
Spread SpreadOf(std::vector<double> values);

}  // namespace lockstep

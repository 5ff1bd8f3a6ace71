#include "measure/rounds.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

Spread SpreadOf(std::vector<double> values) {
  LS_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

}  // namespace lockstep

// What the engine does with a fact's Rounding.
#pragma once

#include <cmath>

#include "base/dtype.h"
#include "spec/model_spec.h"

namespace lockstep {

inline double Round(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNone:
      break;
    case Rounding::kBF16:
      return ToFloat(ToBFloat16(static_cast<float>(value)));
    case Rounding::kFP16:
      return ToFloat(ToFloat16(static_cast<float>(value)));
    case Rounding::kTwoDecimals:
      return std::nearbyint(value * 100) / 100;
  }
  return value;
}

// x * scale or x / scale for n elements.
inline void ScaleRow(const Scale& scale, int64_t n, float* x) {
  const auto factor = static_cast<float>(Round(scale.value, scale.rounding));
  if (factor == 1) return;
  if (scale.divide)
    for (int64_t i = 0; i < n; ++i) x[i] /= factor;
  else
    for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace lockstep

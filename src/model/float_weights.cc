#include "model/float_weights.h"

#include <memory>
#include <utility>

namespace lockstep {

WeightView FloatView(std::string name, std::span<const float> values, int64_t cols) {
  return {.tensor = std::move(name),
          .type = FindTensorType("F32"),
          .data = reinterpret_cast<const std::byte*>(values.data()),
          .rows = static_cast<int64_t>(values.size()) / cols,
          .cols = cols,
          .row_stride = cols};
}

void SetFloats(Weights& weights, const WeightId& id, std::vector<float> values, int64_t cols) {
  auto kept = std::make_shared<const std::vector<float>>(std::move(values));
  weights.Set(id, FloatView(ToString(id), *kept, cols));
  weights.Keep(std::move(kept));
}

}  // namespace lockstep

// SimplifiedLayerNormalization (ai.onnx): y = x / sqrt(mean(x^2) + epsilon) * scale over the axes
// from `axis` on. Y has the type of scale, whatever X has. inv_std_var: [leading axes..., 1, ...],
// float.
#include <algorithm>
#include <cmath>

#include "onnx_ops/operators.h"

namespace lockstep {
namespace {

enum Slot : uint8_t { kX, kScale };

// scale may be smaller than X.shape[axis:] where NumPy would broadcast it.
bool Broadcasts(const Shape& scale, const Shape& to) {
  if (scale.size() > to.size()) return false;
  const size_t shift = to.size() - scale.size();
  for (size_t i = 0; i < scale.size(); ++i)
    if (scale[i] != 1 && scale[i] != to[shift + i]) return false;
  return true;
}

// The scale of every element of a group.
std::vector<double> Spread(const std::vector<double>& scale, const Shape& shape, const Shape& to) {
  std::vector<double> out(static_cast<size_t>(ElementsOf(to)));
  for (size_t i = 0; i < out.size(); ++i) {
    size_t rest = i, at = 0, stride = 1;
    for (size_t back = 1; back <= to.size(); ++back) {
      const auto extent = static_cast<size_t>(to[to.size() - back]);
      const size_t place = rest % extent;
      rest /= extent;
      if (back > shape.size()) continue;
      const auto mine = static_cast<size_t>(shape[shape.size() - back]);
      if (mine != 1) at += place * stride;
      stride *= mine;
    }
    out[i] = scale[at];
  }
  return out;
}

}  // namespace

Refusal CheckSimplifiedLayerNorm(const OpCall& call) {
  const Shape& x = In(call, kX)->shape;
  const auto rank = static_cast<int64_t>(x.size());
  int64_t axis = IntOf(call, "axis", -1);
  if (rank < 1 || axis < -rank || axis >= rank)
    return LoadFails(call, "axis is {}, but X has {} dimensions; name one of them", axis, rank);
  if (axis < 0) axis += rank;
  const Shape group(x.begin() + axis, x.end());
  if (!Broadcasts(In(call, kScale)->shape, group))
    return BadArgument(call,
                       "scale has the shape {}, expected {} or what broadcasts to it; write it "
                       "so",
                       ShapeText(In(call, kScale)->shape), ShapeText(group));
  return {};
}

Result<OpResults> RunSimplifiedLayerNorm(const OpCall& call, const OpOptions&) {
  const OpTensor* x = In(call, kX);
  const auto rank = static_cast<int64_t>(x->shape.size());
  int64_t axis = IntOf(call, "axis", -1);
  if (axis < 0) axis += rank;
  const Shape group(x->shape.begin() + axis, x->shape.end());
  const auto n = static_cast<size_t>(ElementsOf(group));
  const std::vector<double> values = DoublesOf(*x);
  const std::vector<double> scale =
      Spread(DoublesOf(*In(call, kScale)), In(call, kScale)->shape, group);
  const double epsilon = FloatOf(call, "epsilon", 1e-5f);
  std::vector<float> y(values.size()), inverse;
  for (size_t at = 0; n > 0 && at < values.size(); at += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += values[at + i] * values[at + i];
    const double inv = 1.0 / std::sqrt(sum / static_cast<double>(n) + epsilon);
    inverse.push_back(static_cast<float>(inv));
    for (size_t i = 0; i < n; ++i) y[at + i] = static_cast<float>(values[at + i] * inv * scale[i]);
  }
  OpResults results(2);
  if (Wanted(call, 0)) results[0] = ValueOf(In(call, kScale)->type, x->shape, y);
  if (Wanted(call, 1)) {
    Shape shape = x->shape;
    std::fill(shape.begin() + axis, shape.end(), 1);
    results[1] = ValueOf(OnnxType::kFloat, std::move(shape), inverse);
  }
  return results;
}

}  // namespace lockstep

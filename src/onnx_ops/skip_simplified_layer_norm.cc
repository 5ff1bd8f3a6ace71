// SkipSimplifiedLayerNormalization (com.microsoft): s = input + skip (+ bias), y = s /
// sqrt(mean(s^2)
// + epsilon) * gamma. Output 3 is s. input [B, S, H] or [S, H]; skip like it, or [S, H] or [1, S,
// H] for every entry of the batch. epsilon defaults to 1e-12 here: exporters write it.
#include <cmath>

#include "onnx_ops/operators.h"

namespace lockstep {
namespace {

enum Slot : uint8_t { kInput, kSkip, kGamma, kBias };

}  // namespace

Refusal CheckSkipSimplifiedLayerNorm(const OpCall& call) {
  const Shape& input = In(call, kInput)->shape;
  const Shape& skip = In(call, kSkip)->shape;
  for (const auto& [name, shape] : {std::pair{"input", &input}, std::pair{"skip", &skip}})
    if (shape->size() != 2 && shape->size() != 3)
      return BadArgument(call, "{} has the shape {}, expected 2 or 3 dimensions; reshape it", name,
                         ShapeText(*shape));
  const bool rows_fit =
      input[input.size() - 2] == skip[skip.size() - 2] && input.back() == skip.back();
  const bool batch_fits =
      skip.size() == 2 || (input.size() == 3 && (skip[0] == 1 || skip[0] == input[0]));
  if (!rows_fit || !batch_fits)
    return BadArgument(call,
                       "skip has the shape {}, expected {} or the last two dimensions of it; "
                       "write it so",
                       ShapeText(skip), ShapeText(input));
  LS_REFUSE(HasShape(call, kGamma, "gamma", {input.back()}));
  LS_REFUSE(HasShape(call, kBias, "bias", {input.back()}));
  if (Wanted(call, 1) || Wanted(call, 2))
    return NotCovered(call, "outputs 1 and 2 (mean, inv_std_var) are asked for; leave them out");
  return {};
}

Result<OpResults> RunSkipSimplifiedLayerNorm(const OpCall& call, const OpOptions&) {
  const OpTensor* input = In(call, kInput);
  const std::vector<double> x = DoublesOf(*input), skip = DoublesOf(*In(call, kSkip)),
                            gamma = DoublesOf(*In(call, kGamma));
  const std::vector<double> bias =
      In(call, kBias) != nullptr ? DoublesOf(*In(call, kBias)) : std::vector<double>();
  const double epsilon = FloatOf(call, "epsilon", 1e-12f);
  const size_t n = gamma.size();
  std::vector<float> y(x.size()), sum(x.size());
  std::vector<double> s(n);
  for (size_t at = 0; n > 0 && at < x.size(); at += n) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) {
      s[i] = x[at + i] + skip[(at + i) % skip.size()] + (bias.empty() ? 0 : bias[i]);
      sum[at + i] = static_cast<float>(s[i]);
      squares += s[i] * s[i];
    }
    const double inv = 1.0 / std::sqrt(squares / static_cast<double>(n) + epsilon);
    for (size_t i = 0; i < n; ++i) y[at + i] = static_cast<float>(s[i] * inv * gamma[i]);
  }
  OpResults results(4);
  if (Wanted(call, 0)) results[0] = ValueOf(input->type, input->shape, y);
  if (Wanted(call, 3)) results[3] = ValueOf(input->type, input->shape, sum);
  return results;
}

}  // namespace lockstep

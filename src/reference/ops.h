// The element-wise operations of a forward pass, one formula each.
#pragma once

#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "spec/model_spec.h"

namespace lockstep {

double Rounded(double value, Rounding rounding);

// x * value or x / value, the value rounded first as the scale says.
template <typename T>
void ApplyScale(const Scale& scale, MatrixView<T> x);

// What a program rounds inside a norm; nothing by default.
struct NormRounding {
  Rounding normalized = Rounding::kNone;  // x / rms, before the weight; of RMS norms
  Rounding inverse = Rounding::kNone;     // 1 / rms, or 1 / deviation
};

// Norm of each group of weight.size() (or, without a weight, group_size) columns of every row.
// weight and bias are empty where the spec has none. x and y may be the same.
template <typename T>
void Norm(const NormSpec& norm, std::span<const float> weight, std::span<const float> bias,
          size_t group_size, MatrixView<const T> x, MatrixView<T> y,
          const NormRounding& rounding = {});

template <typename T>
T Activate(Activation activation, T x);

// gate <- activation(gate) * up, or the clamped form.
template <typename T>
void GatedActivation(const MlpSpec& mlp, MatrixView<const T> up, MatrixView<T> gate);

// cap * tanh(x / cap)
template <typename T>
void SoftCap(double cap, std::span<T> x);

// exp(x - max) / sum, in place; `extra` joins the maximum and the sum (an attention sink).
template <typename T>
void Softmax(std::span<T> x, const T* extra = nullptr);

// Of each token's router logits [num_tokens, num_experts], the weight of every expert in place: 0
// for those not chosen. selection_bias is empty where the spec has none.
template <typename T>
void Route(const RouterSpec& router, int64_t num_experts_per_tok,
           std::span<const float> selection_bias, MatrixView<T> logits);

}  // namespace lockstep

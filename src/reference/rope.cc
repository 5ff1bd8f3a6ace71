#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;  // clang 14 does not deduce for aggregates

// theta^(2i / d) in fp32: torch raises the fp32 base to an fp32 exponent.
std::vector<float> PositionFrequencies(double theta, int64_t rotary_dim) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    frequencies.push_back(static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return frequencies;
}

std::vector<float> PlainInverseFrequencies(double theta, int64_t rotary_dim) {
  std::vector<float> inverse = PositionFrequencies(theta, rotary_dim);
  for (float& f : inverse) f = 1.0f / f;
  return inverse;
}

// _compute_yarn_parameters: frequencies that turn often over the original context stay, those that
// turn less than beta_slow times are divided by factor, a linear ramp over the dimensions lies
// between.
std::vector<float> Yarn(const YarnScaling& yarn, double theta, int64_t rotary_dim) {
  const auto correction_dim = [&](double rotations) {
    return static_cast<double>(rotary_dim) *
           std::log(static_cast<double>(yarn.original_max_position_embeddings) /
                    (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = correction_dim(yarn.beta_fast), high = correction_dim(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  std::vector<float> inverse = PositionFrequencies(theta, rotary_dim);
  for (size_t i = 0; i < inverse.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float keep = 1 - ramp;
    const float extrapolated = 1.0f / inverse[i];
    const float interpolated = 1.0f / (static_cast<float>(yarn.factor) * inverse[i]);
    inverse[i] = interpolated * (1 - keep) + extrapolated * keep;
  }
  return inverse;
}

// _compute_llama3_parameters: wavelengths beyond original / low_freq_factor are stretched by
// factor, those below original / high_freq_factor kept, a smooth blend between.
std::vector<float> Llama3(const Llama3Scaling& llama3, std::vector<float> inverse) {
  const auto original = static_cast<float>(llama3.original_max_position_embeddings);
  const auto factor = static_cast<float>(llama3.factor);
  const auto low = static_cast<float>(llama3.low_freq_factor);
  const auto high = static_cast<float>(llama3.high_freq_factor);
  for (float& f : inverse) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
    if (wavelength > original / low) {
      f /= factor;
    } else if (wavelength >= original / high) {
      const float smooth = (original / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
  return inverse;
}

}  // namespace

std::vector<float> InverseFrequencies(const RopeSpec& rope, int64_t length) {
  const int64_t d = rope.rotary_dim;
  if (!rope.scaling) return PlainInverseFrequencies(rope.theta, d);
  const auto divided = [&](const std::vector<double>& factors) {
    // 1 / (factor * theta^(2i/d)), as longrope and rope_freqs are defined.
    std::vector<float> inverse = PositionFrequencies(rope.theta, d);
    for (size_t i = 0; i < inverse.size(); ++i)
      inverse[i] = 1.0f / (static_cast<float>(factors[i]) * inverse[i]);
    return inverse;
  };
  return std::visit(
      Overloaded{
          [&](const LinearScaling& linear) {
            std::vector<float> inverse = PlainInverseFrequencies(rope.theta, d);
            for (float& f : inverse) f /= static_cast<float>(linear.factor);
            return inverse;
          },
          // _compute_dynamic_ntk_parameters
          [&](const DynamicScaling& dynamic) {
            const auto original = static_cast<double>(dynamic.original_max_position_embeddings);
            const double reach = std::max(static_cast<double>(length), original);
            const double base =
                rope.theta * std::pow(dynamic.factor * reach / original - (dynamic.factor - 1),
                                      static_cast<double>(d) / static_cast<double>(d - 2));
            return PlainInverseFrequencies(base, d);
          },
          [&](const Llama3Scaling& llama3) {
            return Llama3(llama3, PlainInverseFrequencies(rope.theta, d));
          },
          [&](const YarnScaling& yarn) { return Yarn(yarn, rope.theta, d); },
          [&](const LongRopeScaling& longrope) {
            return divided(length > longrope.original_max_position_embeddings
                               ? longrope.long_factor
                               : longrope.short_factor);
          },
          [&](const FrequencyFactors& factors) { return divided(factors.factors); },
      },
      *rope.scaling);
}

double RopeAttentionFactor(const RopeSpec& rope) {
  if (!rope.scaling) return 1;
  if (const auto* yarn = std::get_if<YarnScaling>(&*rope.scaling)) return yarn->attention_factor;
  if (const auto* longrope = std::get_if<LongRopeScaling>(&*rope.scaling))
    return longrope->attention_factor;
  return 1;
}

RopeTable::RopeTable(const RopeSpec& rope, int64_t first, int64_t count, int64_t length)
    : half(rope.rotary_dim / 2) {
  const std::vector<float> inverse = InverseFrequencies(rope, length);
  const auto factor = static_cast<float>(RopeAttentionFactor(rope));
  cos.reserve(static_cast<size_t>(count * half));
  sin.reserve(static_cast<size_t>(count * half));
  for (int64_t p = first; p < first + count; ++p) {
    for (const float f : inverse) {
      // The fp32 product is the definition; its cosine is taken in double and rounded once.
      const double angle = static_cast<double>(static_cast<float>(p) * f);
      cos.push_back(static_cast<float>(std::cos(angle)) * factor);
      sin.push_back(static_cast<float>(std::sin(angle)) * factor);
    }
  }
}

template <typename T>
void ApplyRope(const RopeTable& table, RopeLayout layout, int64_t num_heads, int64_t head_dim,
               int64_t skip, MatrixView<T> rows) {
  const int64_t half = table.half;
  // Elements i and i + half, or 2i and 2i + 1, of the rotary part are the point that turns.
  const int64_t step = layout == RopeLayout::kHalf ? 1 : 2;
  const int64_t apart = layout == RopeLayout::kHalf ? half : 1;
  for (size_t t = 0; t < rows.rows; ++t) {
    const float* cos = table.cos.data() + static_cast<int64_t>(t) * half;
    const float* sin = table.sin.data() + static_cast<int64_t>(t) * half;
    for (int64_t h = 0; h < num_heads; ++h) {
      T* head = rows.row(t).data() + h * head_dim + skip;
      for (int64_t i = 0; i < half; ++i) {
        T& a = head[i * step];
        T& b = head[i * step + apart];
        const T c = static_cast<T>(cos[i]), s = static_cast<T>(sin[i]);
        const T turned = a * c - b * s;
        b = b * c + a * s;
        a = turned;
      }
    }
  }
}

template void ApplyRope<float>(const RopeTable&, RopeLayout, int64_t, int64_t, int64_t,
                               MatrixView<float>);
template void ApplyRope<double>(const RopeTable&, RopeLayout, int64_t, int64_t, int64_t,
                                MatrixView<double>);

}  // namespace lockstep

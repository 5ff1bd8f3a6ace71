#include "engine/rotary.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

struct Frequencies {
  std::vector<float> inverse;
  float amplitude = 1;
};

// How frequency i is changed by each scaling (docs/model_spec.md has the formulas); all in fp32
// from base^(2i/d), as the definition has it.
Frequencies FrequenciesOf(const RopeSpec& rope, int64_t length) {
  Frequencies f;
  const int64_t half = rope.rotary_dim / 2;
  double base = rope.theta;
  const RopeScaling* scaling = rope.scaling ? &*rope.scaling : nullptr;
  if (scaling != nullptr) {
    if (const auto* dynamic = std::get_if<DynamicScaling>(scaling)) {
      const auto original = static_cast<double>(dynamic->original_max_position_embeddings);
      const double stretch = std::max<double>(static_cast<double>(length), original) / original;
      const auto d = static_cast<double>(rope.rotary_dim);
      base *= std::pow(dynamic->factor * stretch - dynamic->factor + 1, d / (d - 2));
    }
  }
  std::vector<float> period;
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    period.push_back(static_cast<float>(std::pow(base, static_cast<double>(exponent))));
    f.inverse.push_back(1.0f / period.back());
  }
  if (scaling == nullptr) return f;
  if (const auto* linear = std::get_if<LinearScaling>(scaling)) {
    for (float& w : f.inverse) w /= static_cast<float>(linear->factor);
  } else if (const auto* llama3 = std::get_if<Llama3Scaling>(scaling)) {
    const auto original = static_cast<float>(llama3->original_max_position_embeddings);
    const auto low = static_cast<float>(llama3->low_freq_factor);
    const auto high = static_cast<float>(llama3->high_freq_factor);
    const auto factor = static_cast<float>(llama3->factor);
    for (float& w : f.inverse) {
      const float turns = original / (static_cast<float>(kTwoPi) / w);  // over the original context
      if (turns < low) {
        w /= factor;
      } else if (turns <= high) {
        const float keep = (turns - low) / (high - low);
        w = (1 - keep) * w / factor + keep * w;
      }
    }
  } else if (const auto* yarn = std::get_if<YarnScaling>(scaling)) {
    const auto dimension_of = [&](double turns) {
      return static_cast<double>(rope.rotary_dim) *
             std::log(static_cast<double>(yarn->original_max_position_embeddings) /
                      (turns * kTwoPi)) /
             (2 * std::log(rope.theta));
    };
    double low = dimension_of(yarn->beta_fast), high = dimension_of(yarn->beta_slow);
    if (yarn->truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rope.rotary_dim - 1));
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < half; ++i) {
      const auto at = static_cast<size_t>(i);
      const float slow = std::clamp(
          (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
          1.0f);
      f.inverse[at] = 1.0f / (static_cast<float>(yarn->factor) * period[at]) * slow +
                      1.0f / period[at] * (1 - slow);
    }
    f.amplitude = static_cast<float>(yarn->attention_factor);
  } else {
    const std::vector<double>* factors = nullptr;
    if (const auto* longrope = std::get_if<LongRopeScaling>(scaling)) {
      factors = length > longrope->original_max_position_embeddings ? &longrope->long_factor
                                                                    : &longrope->short_factor;
      f.amplitude = static_cast<float>(longrope->attention_factor);
    } else if (const auto* given = std::get_if<FrequencyFactors>(scaling)) {
      factors = &given->factors;
    }
    if (factors != nullptr)
      for (size_t i = 0; i < f.inverse.size(); ++i)
        f.inverse[i] = 1.0f / (static_cast<float>((*factors)[i]) * period[i]);
  }
  return f;
}

}  // namespace

RotaryTable::RotaryTable(const RopeSpec& rope)
    : rope_(rope),
      follows_length_(rope.scaling && (std::holds_alternative<DynamicScaling>(*rope.scaling) ||
                                       std::holds_alternative<LongRopeScaling>(*rope.scaling))),
      half_(rope.rotary_dim / 2) {
  Frequencies f = FrequenciesOf(rope_, length_);
  inverse_ = std::move(f.inverse);
  amplitude_ = f.amplitude;
}

void RotaryTable::Reserve(int64_t rows) {
  // Either may fail for want of memory: the second tells whether both are there.
  if (static_cast<int64_t>(sin_.size()) >= rows * half_) return;
  cos_.resize(static_cast<size_t>(rows * half_));
  sin_.resize(static_cast<size_t>(rows * half_));
}

void RotaryTable::Fill(int64_t row, int64_t first, int64_t count, int64_t length) {
  if (follows_length_ && length != length_) {
    Frequencies f = FrequenciesOf(rope_, length);
    inverse_ = std::move(f.inverse);
    amplitude_ = f.amplitude;
    length_ = length;
  }
  auto at = static_cast<size_t>(row * half_);
  for (int64_t p = first; p < first + count; ++p) {
    for (const float w : inverse_) {
      const auto angle = static_cast<double>(static_cast<float>(p) * w);
      cos_[at] = static_cast<float>(std::cos(angle)) * amplitude_;
      sin_[at++] = static_cast<float>(std::sin(angle)) * amplitude_;
    }
  }
}

}  // namespace lockstep

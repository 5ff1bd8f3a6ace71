#include "arch/spec_facts.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "spec/fields.h"

namespace lockstep {
namespace {

double Wavelength(double theta, int64_t rotary_dim, size_t pair) {
  const double exponent = 2 * static_cast<double>(pair) / static_cast<double>(rotary_dim);
  return 2 * std::numbers::pi * std::pow(theta, exponent);
}

// All but the architecture's name, with numbers as floats hold them and bands as factors.
ModelSpec Comparable(const ModelSpec& spec) {
  ModelSpec out = spec;
  out.architecture.clear();
  for (LayerSpec& layer : out.layers) {
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || !attention->rope || !attention->rope->scaling) continue;
    RopeSpec& rope = *attention->rope;
    const auto* llama3 = std::get_if<Llama3Scaling>(&*rope.scaling);
    if (llama3 == nullptr) continue;
    const std::vector<float> factors = Llama3Factors(*llama3, rope.theta, rope.rotary_dim);
    rope.scaling = FrequencyFactors{{factors.begin(), factors.end()}};
  }
  const auto round = [](const auto& self, Json& json) -> void {
    if (json.is_number_float()) json = static_cast<double>(static_cast<float>(json.get<double>()));
    if (json.is_structured())
      for (Json& element : json) self(self, element);
  };
  Json json = ToJson(out);
  round(round, json);
  auto rounded = FromJson(json, "");
  // A number beyond a float's range is left as it is, and differs.
  return rounded ? *std::move(rounded) : out;
}

// Converters compute the same formula in floats: some units in the last place.
bool SameFactors(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kTolerance = 2e-6;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return std::abs(x - y) <= kTolerance * std::abs(x); });
}

FrequencyFactors* FactorsOf(LayerSpec& layer) {
  auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  if (attention == nullptr || !attention->rope || !attention->rope->scaling) return nullptr;
  return std::get_if<FrequencyFactors>(&*attention->rope->scaling);
}

// The line s = slope / wavelength + intercept through two points of the ramp.
struct Ramp {
  double slope = 0, intercept = 0;
};

std::optional<Ramp> FindRamp(const std::vector<double>& factors, double factor, double theta,
                             int64_t rotary_dim) {
  std::vector<std::pair<double, double>> points;  // 1 / wavelength, s
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 1.0001) || !(factors[i] < factor * 0.9999)) continue;
    const double s = (1 / factors[i] - 1 / factor) / (1 - 1 / factor);
    points.emplace_back(1 / Wavelength(theta, rotary_dim, i), s);
  }
  if (points.size() < 2) return std::nullopt;
  const auto& [x0, s0] = points.front();
  const auto& [x1, s1] = points.back();
  Ramp ramp;
  ramp.slope = (s1 - s0) / (x1 - x0);
  ramp.intercept = s0 - ramp.slope * x0;
  if (!(ramp.slope > 0) || !(ramp.intercept < 0)) return std::nullopt;
  return ramp;
}

// Stated numbers have few digits; what was computed from floats has an error behind them.
double FewDigits(double x) { return std::round(x * 1000) / 1000; }

}  // namespace

double MscaleAllDim(const MlaSpec& mla) {
  const auto* yarn = mla.rope.scaling ? std::get_if<YarnScaling>(&*mla.rope.scaling) : nullptr;
  if (yarn == nullptr || yarn->factor <= 1) return 0;
  const auto length = static_cast<double>(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  const double mscale = std::sqrt(mla.query_scale.value * std::sqrt(length));
  const double stated = (mscale - 1) / (0.1 * std::log(yarn->factor));
  const double digits = std::round(stated * 1e6) / 1e6;
  return digits;
}

double YarnAttentionFactor(double factor) { return factor <= 1 ? 1 : 0.1 * std::log(factor) + 1; }

// convert_hf_to_gguf.py's generate_extra_tensors (conversion of Llama): the same bands as
// transformers' _compute_llama3_parameters.
std::vector<float> Llama3Factors(const Llama3Scaling& scaling, double theta, int64_t rotary_dim) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double low = original / scaling.low_freq_factor, high = original / scaling.high_freq_factor;
  std::vector<float> factors;
  for (size_t i = 0; i < static_cast<size_t>(rotary_dim / 2); ++i) {
    const double wavelength = Wavelength(theta, rotary_dim, i);
    double factor = 1;
    if (wavelength > low) {
      factor = scaling.factor;
    } else if (wavelength >= high) {
      const double smooth = (original / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      factor = 1 / ((1 - smooth) / scaling.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

std::optional<Llama3Scaling> FitLlama3(const std::vector<double>& factors, double theta,
                                       int64_t rotary_dim, int64_t original) {
  if (factors.size() != static_cast<size_t>(rotary_dim / 2) || factors.empty()) return std::nullopt;
  const double factor = *std::max_element(factors.begin(), factors.end());
  const auto gives = [&](const Llama3Scaling& scaling) {
    const std::vector<float> made = Llama3Factors(scaling, theta, rotary_dim);
    return SameFactors({made.begin(), made.end()}, factors);
  };
  // What Llama 3.1 and its descendants have.
  Llama3Scaling usual{.factor = factor,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_max_position_embeddings = original > 0 ? original : 8192};
  if (gives(usual)) return usual;
  const auto ramp = FindRamp(factors, factor, theta, rotary_dim);
  if (!ramp) return std::nullopt;
  // slope = original / (high - low), intercept = -low / (high - low)
  const double width =
      original > 0 ? static_cast<double>(original) / ramp->slope : -1 / ramp->intercept;
  Llama3Scaling fitted{.factor = factor};
  fitted.low_freq_factor = FewDigits(-ramp->intercept * width);
  fitted.high_freq_factor = FewDigits(-ramp->intercept * width + width);
  fitted.original_max_position_embeddings =
      original > 0 ? original : std::llround(ramp->slope * width);
  if (!(fitted.low_freq_factor > 0) || fitted.original_max_position_embeddings < 1)
    return std::nullopt;
  return gives(fitted) ? std::optional(fitted) : std::nullopt;
}

std::vector<std::string> FactsThatDiffer(const ModelSpec& wanted, const ModelSpec& found) {
  ModelSpec a = Comparable(wanted), b = Comparable(found);
  for (size_t i = 0; i < std::min(a.layers.size(), b.layers.size()); ++i) {
    const FrequencyFactors* of_a = FactorsOf(a.layers[i]);
    FrequencyFactors* of_b = FactorsOf(b.layers[i]);
    if (of_a != nullptr && of_b != nullptr && SameFactors(of_a->factors, of_b->factors))
      of_b->factors = of_a->factors;
  }
  std::vector<std::string> out;
  for (const FieldDifference& difference : JoinLayers(Diff(a, b)))
    out.push_back(ToString(difference));
  return out;
}

}  // namespace lockstep

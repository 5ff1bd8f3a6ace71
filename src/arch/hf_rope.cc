// ParseRope: the formulas are those of transformers' modeling_rope_utils.py.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "arch/hf_config.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr std::string_view kLayerTypes[] = {"full_attention", "sliding_attention"};

// The keys of transformers' RopeParameters, and "type", the older word for rope_type. A key that
// the rope_type does not use is ignored there as well.
constexpr std::string_view kKnownKeys[] = {
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "factor",
    "finetuned",  // a remark of some YaRN checkpoints; never read
    "high_freq_factor",
    "long_factor",
    "low_freq_factor",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "rope_theta",
    "rope_type",
    "short_factor",
    "truncate",
    "type",
};

// The keys of one dictionary beside the keys of the config, whichever layout it has.
struct RopeSource {
  Json parameters = Json::object();
  Json outer = Json::object();  // what holds `parameters` when they are nested; else the same
  bool nested = false;
  std::string place;
};

Result<const Json*> FindObject(HfConfig& config, std::string_view key) {
  const Json* value = config.FindRaw(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return config.Bad(key, "an object");
  return value->empty() ? nullptr : value;
}

Result<RopeSource> FindSource(HfConfig& config, std::string_view layer_type) {
  LS_TRY(const Json* parameters, FindObject(config, "rope_parameters"));
  LS_TRY(const Json* scaling, FindObject(config, "rope_scaling"));
  RopeSource source;
  if (layer_type.empty()) {
    const Json* chosen = scaling != nullptr ? scaling : parameters;
    source.place = fmt::format("{}: {}", config.place(),
                               scaling != nullptr ? "rope_scaling" : "rope_parameters");
    if (chosen != nullptr) source.parameters = source.outer = *chosen;
    return source;
  }
  source.nested = true;
  source.place = fmt::format("{}: rope_parameters.{}", config.place(), layer_type);
  if (parameters != nullptr) {
    source.outer = *parameters;
    const auto found = parameters->find(std::string(layer_type));
    if (found != parameters->end() && !found->is_null()) {
      if (!found->is_object()) return InputError("{} is not an object", source.place);
      source.parameters = *found;
    }
  }
  if (scaling != nullptr && layer_type == "full_attention") {
    source.place = fmt::format("{}: rope_scaling", config.place());
    // transformers updates a dictionary that says rope_type "default" already: the older word
    // "type" changes nothing there, though whoever wrote it meant it to.
    if (parameters == nullptr) source.parameters["rope_type"] = "default";
    if (scaling->contains("type") && !scaling->contains("rope_type"))
      config.ReportUnread("rope_scaling.type");
    for (const auto& [key, value] : scaling->items()) source.parameters[key] = value;
  }
  return source;
}

Status CheckKeys(const RopeSource& source, std::span<const std::string_view> extra) {
  for (const auto& [key, value] : source.parameters.items()) {
    const auto is_key = [&key = key](std::string_view known) { return known == key; };
    if (std::any_of(std::begin(kKnownKeys), std::end(kKnownKeys), is_key)) continue;
    if (std::any_of(extra.begin(), extra.end(), is_key)) continue;
    if (std::any_of(std::begin(kLayerTypes), std::end(kLayerTypes), is_key))
      return UnsupportedError("{}: has \"{}\", expected one RoPE for all layers of this model",
                              source.place, key);
    return UnsupportedError("{}: {} is not a key of RoPE, expected one of {}", source.place,
                            Quoted(key), fmt::join(kKnownKeys, ", "));
  }
  return {};
}

Result<double> PositiveOf(HfConfig& parameters, std::string_view key) {
  LS_TRY(const double value, parameters.Require<double>(key));
  if (!(value > 0)) return parameters.Bad(key, "a number above 0");
  return value;
}

Result<int64_t> LengthOf(HfConfig& parameters, std::string_view key) {
  LS_TRY(const int64_t value, parameters.Require<int64_t>(key));
  if (value < 1 || value > kMaxLength)
    return parameters.Bad(key, fmt::format("a length from 1 to {}", kMaxLength));
  return value;
}

// transformers' get_mscale; 0.1 ln(s) + 1 is from the YaRN paper (arXiv 2309.00071, eq. 22).
double YarnMscale(double scale, double mscale) {
  return scale <= 1 ? 1 : 0.1 * mscale * std::log(scale) + 1;
}

Result<std::vector<double>> FactorsOf(HfConfig& parameters, std::string_view key, int64_t size) {
  LS_TRY(auto factors, parameters.Require<std::vector<double>>(key));
  if (static_cast<int64_t>(factors.size()) != size)
    return InputError("{}: \"{}\" has {} numbers, expected {} (half of the rotary dimensions)",
                      parameters.place(), key, factors.size(), size);
  for (const double factor : factors)
    if (!(factor > 0)) return parameters.Bad(key, "numbers above 0");
  return factors;
}

// `parameters` are the keys of the RoPE dictionary, `config` those of the model.
class ScalingParser {
 public:
  ScalingParser(HfConfig& config, HfConfig& parameters, const RopeSource& source,
                const RopeQuery& query, const RopeSpec& rope)
      : config_(config), parameters_(parameters), source_(source), query_(query), rope_(rope) {}

  Result<std::optional<RopeScaling>> Parse(std::string_view type) {
    if (type == "default") return std::optional<RopeScaling>();
    if (type == "linear") return Linear();
    if (type == "dynamic") return Dynamic();
    if (type == "llama3") return Llama3();
    if (type == "yarn") return query_.yarn_is_longrope ? LongRope() : Yarn();
    // "su" is the name longrope had in the first Phi-3 files.
    if (type == "longrope" || type == "su") return LongRope();
    return UnsupportedError(
        "{}: the rope_type is {}, expected one of default, linear, dynamic, llama3, yarn, "
        "longrope",
        source_.place, Quoted(type));
  }

 private:
  using Scaling = Result<std::optional<RopeScaling>>;

  // The key beside the dictionary wins over the one in it (standardize_rope_params); without
  // either, the context was never extended.
  Result<int64_t> OriginalLength() {
    constexpr std::string_view kKey = "original_max_position_embeddings";
    if (!source_.nested) {
      if (config_.Has(kKey)) return LengthOf(config_, kKey);
      if (query_.default_original_max_position_embeddings > 0)
        return query_.default_original_max_position_embeddings;
    }
    if (parameters_.Has(kKey)) return LengthOf(parameters_, kKey);
    return query_.max_position_embeddings;
  }

  Scaling Linear() {
    LS_TRY(const double factor, PositiveOf(parameters_, "factor"));
    return RopeScaling(LinearScaling{factor});
  }

  Scaling Dynamic() {
    LS_TRY(const double factor, PositiveOf(parameters_, "factor"));
    if (factor < 1) return parameters_.Bad("factor", "1 or more");
    if (rope_.rotary_dim <= 2)
      return InputError("{}: dynamic RoPE divides by rotary_dim - 2, and rotary_dim is {}",
                        source_.place, rope_.rotary_dim);
    // transformers measures the growth against max_position_embeddings, whatever
    // original_max_position_embeddings says.
    return RopeScaling(DynamicScaling{factor, query_.max_position_embeddings});
  }

  Scaling Llama3() {
    Llama3Scaling scaling;
    LS_TRY(scaling.factor, PositiveOf(parameters_, "factor"));
    LS_TRY(scaling.low_freq_factor, PositiveOf(parameters_, "low_freq_factor"));
    LS_TRY(scaling.high_freq_factor, PositiveOf(parameters_, "high_freq_factor"));
    if (!(scaling.high_freq_factor > scaling.low_freq_factor))
      return parameters_.Bad("high_freq_factor",
                             fmt::format("more than low_freq_factor {}", scaling.low_freq_factor));
    LS_TRY(scaling.original_max_position_embeddings, OriginalLength());
    return RopeScaling(scaling);
  }

  // `factor` when stated, else the ratio of the contexts.
  Result<double> Factor(int64_t original) {
    if (parameters_.Has("factor")) return PositiveOf(parameters_, "factor");
    return static_cast<double>(query_.max_position_embeddings) / static_cast<double>(original);
  }

  Scaling Yarn() {
    YarnScaling scaling;
    LS_TRY(scaling.original_max_position_embeddings, OriginalLength());
    LS_TRY(scaling.factor, Factor(scaling.original_max_position_embeddings));
    // `or`: a 0 counts as absent in transformers too.
    LS_TRY(const double fast, parameters_.Get<double>("beta_fast", 0));
    LS_TRY(const double slow, parameters_.Get<double>("beta_slow", 0));
    scaling.beta_fast = fast == 0 ? 32 : fast;
    scaling.beta_slow = slow == 0 ? 1 : slow;
    if (!(scaling.beta_fast > 0)) return parameters_.Bad("beta_fast", "a number above 0");
    if (!(scaling.beta_slow > 0)) return parameters_.Bad("beta_slow", "a number above 0");
    if (!(rope_.theta > 1))
      return InputError("{}: YaRN divides by ln(rope_theta), and rope_theta is {}", source_.place,
                        rope_.theta);
    // transformers reads truncate from the outer dictionary, also when the RoPE is nested.
    HfConfig outer(source_.outer, source_.place);
    LS_TRY(scaling.truncate, outer.Get<bool>("truncate", true));
    LS_TRY(const double mscale, parameters_.Get<double>("mscale", 0));
    LS_TRY(const double mscale_all_dim, parameters_.Get<double>("mscale_all_dim", 0));
    if (parameters_.Has("attention_factor")) {
      LS_TRY(scaling.attention_factor, PositiveOf(parameters_, "attention_factor"));
    } else if (mscale != 0 && mscale_all_dim != 0) {
      scaling.attention_factor =
          YarnMscale(scaling.factor, mscale) / YarnMscale(scaling.factor, mscale_all_dim);
    } else {
      scaling.attention_factor = YarnMscale(scaling.factor, 1);
    }
    return RopeScaling(scaling);
  }

  Scaling LongRope() {
    LongRopeScaling scaling;
    LS_TRY(scaling.short_factor, FactorsOf(parameters_, "short_factor", rope_.rotary_dim / 2));
    LS_TRY(scaling.long_factor, FactorsOf(parameters_, "long_factor", rope_.rotary_dim / 2));
    LS_TRY(scaling.original_max_position_embeddings, OriginalLength());
    const int64_t original = scaling.original_max_position_embeddings;
    LS_TRY(const double factor, Factor(original));
    if (parameters_.Has("attention_factor")) {
      LS_TRY(scaling.attention_factor, PositiveOf(parameters_, "attention_factor"));
    } else if (factor > 1) {  // LongRoPE (arXiv 2402.13753)
      if (original < 2)
        return InputError(
            "{}: longrope divides by ln(original_max_position_embeddings), and that "
            "length is {}",
            source_.place, original);
      scaling.attention_factor =
          std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
    }
    return RopeScaling(std::move(scaling));
  }

  HfConfig& config_;
  HfConfig& parameters_;
  const RopeSource& source_;
  const RopeQuery& query_;
  const RopeSpec& rope_;
};

}  // namespace

Result<RopeSpec> ParseRope(HfConfig& config, const RopeQuery& query) {
  LS_TRY(const RopeSource source, FindSource(config, query.layer_type));
  LS_RETURN_IF_ERROR(CheckKeys(source, query.extra_keys));
  HfConfig parameters(source.parameters, source.place);

  RopeSpec rope;
  rope.layout = query.layout;
  double theta = query.default_theta;
  if (!query.theta_key.empty()) {
    LS_TRY(theta, GetPositive(config, query.theta_key, theta));
  }
  LS_TRY(rope.theta, GetPositive(parameters, "rope_theta", theta));

  LS_TRY(const std::string old_type, parameters.Get<std::string>("type", "default"));
  LS_TRY(const std::string type, parameters.Get<std::string>("rope_type", std::string(old_type)));

  LS_TRY(double partial,
         config.Get<double>("partial_rotary_factor", double{query.default_partial_rotary_factor}));
  LS_TRY(partial, parameters.Get<double>("partial_rotary_factor", double{partial}));
  if (!(partial > 0 && partial <= 1))
    return (parameters.Has("partial_rotary_factor") ? parameters : config)
        .Bad("partial_rotary_factor", "a number above 0 and up to 1");
  if (!query.partial_rotary) {
    // The scaled kinds compute frequencies for the part only, which do not fit a whole head.
    if (partial != 1 && type != "default")
      return UnsupportedError(
          "{}: partial_rotary_factor is {} with rope_type {}, expected 1: this architecture turns "
          "whole heads",
          config.place(), partial, Quoted(type));
    partial = 1;
  }
  // int() of Python: towards zero.
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(query.head_dim) * partial);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0)
    return InputError(
        "{}: RoPE turns {} of the {} elements of a head (head_dim times "
        "partial_rotary_factor {}), expected an even number of at least 2",
        config.place(), rope.rotary_dim, query.head_dim, partial);

  LS_TRY(rope.scaling, ScalingParser(config, parameters, source, query, rope).Parse(type));
  return rope;
}

}  // namespace lockstep

// RoPE as GGUF states it. llama.cpp reads these keys in load_hparams (src/llama-model.cpp) and
// makes numbers of them in the constructor of llama_context and in ggml_rope_yarn
// (ggml-cpu/ops.cpp).
#include <cmath>

#include "arch/gguf_config.h"
#include "arch/hf_config.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

// transformers' get_mscale, which llama.cpp follows.
double YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

struct ScalingKeys {
  std::string type;
  double factor = 1;       // 1: positions are not stretched
  double attn_factor = 1;  // multiplies cos and sin
  int64_t original_context = 0;
};

Result<ScalingKeys> ReadScalingKeys(GgufConfig& config) {
  ScalingKeys keys;
  // llama.cpp takes "linear" when the type is absent, and a factor of 0 for "no factor".
  LS_TRY(keys.type, config.Get<std::string>("rope.scaling.type", "linear"));
  LS_TRY(keys.factor, config.Get<double>("rope.scaling.factor", 0));
  if (keys.factor < 0) return config.Bad("rope.scaling.factor", "a factor above 0");
  if (keys.factor == 0) {
    LS_TRY(keys.factor, config.Get<double>("rope.scale_linear", 0));  // the name until 2023
    if (keys.factor < 0) return config.Bad("rope.scale_linear", "a factor above 0");
  } else {
    config.Ignore("rope.scale_linear");
  }
  if (keys.factor == 0) keys.factor = 1;
  LS_TRY(keys.attn_factor, config.Get<double>("rope.scaling.attn_factor", 1));
  if (keys.attn_factor <= 0) return config.Bad("rope.scaling.attn_factor", "a factor above 0");
  LS_TRY(const int64_t context, config.Get<int64_t>("context_length", 0));
  LS_TRY(keys.original_context,
         config.Get<int64_t>("rope.scaling.original_context_length", context));
  if (keys.original_context < 0 || keys.original_context > kMaxLength)
    return config.Bad("rope.scaling.original_context_length",
                      fmt::format("a length up to {}", kMaxLength));
  config.Ignore("rope.scaling.finetuned");  // how the model was trained
  return keys;
}

Result<YarnScaling> ReadYarn(GgufConfig& config, const GgufRopeQuery& query,
                             const ScalingKeys& keys) {
  YarnScaling yarn;
  yarn.factor = keys.factor;
  yarn.truncate = query.yarn_truncate;
  yarn.original_max_position_embeddings = keys.original_context;
  if (yarn.original_max_position_embeddings < 1)
    return config.Bad("rope.scaling.original_context_length", "the context before YaRN");
  for (auto [key, beta] : {std::pair{"rope.scaling.yarn_beta_fast", &yarn.beta_fast},
                           std::pair{"rope.scaling.yarn_beta_slow", &yarn.beta_slow}}) {
    LS_TRY(*beta, config.Get<double>(key, *beta));
    if (*beta <= 0) return config.Bad(key, "a number above 0");
  }
  // The weight of the ramp: 0 would be linear scaling, between them a mixture that nobody uses.
  LS_TRY(const double ext_factor, config.Get<double>("rope.scaling.yarn_ext_factor", 1));
  if (ext_factor != 1)
    return config.Bad("rope.scaling.yarn_ext_factor", "1 (all of YaRN's ramp) or no such key");

  // Converters write what config.json calls attention_factor, which replaces the computed one.
  LS_TRY(const std::optional<double> stated, config.Find<double>("rope.scaling.yarn_attn_factor"));
  if (stated && *stated <= 0)
    return config.Bad("rope.scaling.yarn_attn_factor", "a factor above 0");
  LS_TRY(const double mscale_all_dim, config.Get<double>("rope.scaling.yarn_log_multiplier", 0));
  if (mscale_all_dim < 0)
    return config.Bad("rope.scaling.yarn_log_multiplier", "a number that is not negative");
  if (stated) {
    yarn.attention_factor = *stated;
  } else if (mscale_all_dim == 0) {
    yarn.attention_factor = YarnMscale(keys.factor, 1);
  } else if (query.deepseek_mscale) {
    yarn.attention_factor = 1;
  } else {
    yarn.attention_factor = YarnMscale(keys.factor, 1) / YarnMscale(keys.factor, mscale_all_dim);
  }
  yarn.attention_factor *= keys.attn_factor;
  return yarn;
}

Result<std::optional<RopeScaling>> ReadScaling(GgufConfig& config, const GgufRopeQuery& query,
                                               int64_t rotary_dim) {
  using Scaling = std::optional<RopeScaling>;
  LS_TRY(const ScalingKeys keys, ReadScalingKeys(config));
  const int64_t pairs = rotary_dim / 2;
  LS_TRY(const auto freqs, config.FindTensor("rope_freqs.weight", pairs));
  LS_TRY(const auto long_factors, config.FindTensor("rope_factors_long.weight", pairs));
  LS_TRY(const auto short_factors, config.FindTensor("rope_factors_short.weight", pairs));

  Scaling by_key;
  if (keys.type == "yarn") {
    LS_TRY(by_key, ReadYarn(config, query, keys));
  } else if (keys.type == "linear" || keys.type == "longrope" || keys.type == "none") {
    if (keys.type != "none" && keys.factor != 1) by_key = LinearScaling{keys.factor};
  } else {
    return UnsupportedError(
        "{}: key \"{}.rope.scaling.type\" is {}, expected none, linear, yarn or longrope",
        config.place(), config.architecture(), Quoted(keys.type));
  }

  // GGUF states longrope and llama3 by these tensors, with or without a type beside them.
  Scaling by_tensor;
  for (const auto* factors : {&freqs, &long_factors, &short_factors}) {
    if (!*factors) continue;
    for (const double factor : **factors)
      if (factor <= 0)
        return InputError("{}: tensor \"{}\" holds {}, expected factors above 0", config.place(),
                          factors == &freqs          ? "rope_freqs.weight"
                          : factors == &long_factors ? "rope_factors_long.weight"
                                                     : "rope_factors_short.weight",
                          factor);
  }
  if (freqs) by_tensor = FrequencyFactors{*freqs};
  if (long_factors || short_factors) {
    if (!long_factors || !short_factors)
      return InputError(
          "{}: of the tensors \"rope_factors_long.weight\" and \"rope_factors_short.weight\" only "
          "one is present, expected both",
          config.place());
    if (freqs)
      return UnsupportedError(
          "{}: has both rope_freqs.weight and rope_factors_long.weight, expected one of them",
          config.place());
    LongRopeScaling longrope;
    longrope.short_factor = *short_factors;
    longrope.long_factor = *long_factors;
    longrope.attention_factor = keys.attn_factor;
    longrope.original_max_position_embeddings = keys.original_context;
    if (longrope.original_max_position_embeddings < 1)
      return config.Bad("rope.scaling.original_context_length", "the context before longrope");
    by_tensor = std::move(longrope);
  } else if (keys.type == "longrope") {
    return InputError(
        "{}: key \"{}.rope.scaling.type\" is longrope, but the tensors rope_factors_long.weight "
        "and rope_factors_short.weight are missing",
        config.place(), config.architecture());
  }

  if (by_key && by_tensor)
    return UnsupportedError(
        "{}: key \"{}.rope.scaling.type\" ({}, factor {}) and a tensor of RoPE factors both scale "
        "RoPE, expected one of them",
        config.place(), config.architecture(), keys.type, keys.factor);
  return by_key ? std::move(by_key) : std::move(by_tensor);
}

}  // namespace

Result<RopeSpec> ParseGgufRope(GgufConfig& config, const GgufRopeQuery& query) {
  RopeSpec rope;
  rope.layout = query.layout;
  LS_TRY(rope.theta, config.Get<double>(query.freq_base_key, query.default_theta));
  if (rope.theta <= 0) return config.Bad(query.freq_base_key, "a base above 0");
  LS_TRY(rope.rotary_dim, config.GetSize("rope.dimension_count", query.head_dim));
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim > query.head_dim) {
    return config.Bad("rope.dimension_count",
                      fmt::format("an even number up to the head's {}", query.head_dim));
  }
  if (query.scaled) {
    LS_TRY(rope.scaling, ReadScaling(config, query, rope.rotary_dim));
  }
  return rope;
}

}  // namespace lockstep

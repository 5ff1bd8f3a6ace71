#include "arch/decoder.h"

#include <cmath>

#include "arch/gguf_presence.h"

namespace lockstep {

Result<ModelSpec> ParseHfDecoder(HfConfig& config, const HfDecoderQuery& query) {
  LS_TRY(ModelSpec spec, ParseCommon(config, query.common));
  LS_TRY(const int64_t num_layers, ParseNumLayers(config, query.num_layers));
  LS_TRY(const double eps, GetPositive(config, "rms_norm_eps", query.default_eps));
  LS_TRY(AttentionSpec attention, ParseHeads(config, spec.embedding.hidden_size, query.heads));
  LS_TRY(attention.rope, ParseRope(config, {.head_dim = attention.head_dim,
                                            .default_theta = query.default_theta,
                                            .max_position_embeddings = spec.max_position_embeddings,
                                            .extra_keys = query.rope_keys}));
  LayerSpec layer;
  layer.mixer_pre_norm = RmsNorm(eps);
  layer.mlp_pre_norm = RmsNorm(eps);
  layer.mixer = attention;
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  spec.final_norm = RmsNorm(eps);
  return spec;
}

Result<int64_t> ParseNumExperts(HfConfig& config, std::initializer_list<std::string_view> keys,
                                int64_t otherwise) {
  int64_t experts = otherwise;
  bool found = false;
  for (const std::string_view key : keys) {
    if (!config.Has(key) || found) continue;
    LS_TRY(experts, config.Require<int64_t>(key));
    if (experts < 1 || experts > kMaxExpertsPerLayer)
      return config.Bad(key, fmt::format("1 to {} experts", kMaxExpertsPerLayer));
    found = true;
  }
  return experts;
}

Result<int64_t> ParseExpertsPerToken(HfConfig& config, int64_t num_experts, int64_t otherwise) {
  LS_TRY(const int64_t chosen, config.Get<int64_t>("num_experts_per_tok", int64_t{otherwise}));
  if (chosen < 1 || chosen > num_experts)
    return config.Bad("num_experts_per_tok", fmt::format("1 to {} (the experts)", num_experts));
  return chosen;
}

Result<std::optional<int64_t>> FindWindow(HfConfig& config, std::string_view key) {
  LS_TRY(const std::optional<int64_t> window, config.Find<int64_t>(key));
  if (window && (*window < 1 || *window > kMaxLength))
    return config.Bad(key, fmt::format("a window of 1 to {} positions", kMaxLength));
  return window;
}

Result<int64_t> GetWindow(HfConfig& config, std::string_view key, bool use, int64_t otherwise) {
  config.Ignore(key);
  if (!use) return otherwise;
  LS_TRY(const std::optional<int64_t> window, FindWindow(config, key));
  return window.value_or(otherwise);
}

AttentionSpec& AttentionOf(LayerSpec& layer) {
  auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  LS_CHECK(attention != nullptr, "the layer's mixer is no attention");
  return *attention;
}

Result<ModelSpec> ParseGgufDecoder(GgufConfig& config, const GgufDecoderQuery& query) {
  LS_TRY(ModelSpec spec, ParseGgufCommon(config));
  LS_TRY(const int64_t num_layers, config.RequireLayers());
  LS_TRY(const double eps, config.Require<double>("attention.layer_norm_rms_epsilon"));
  if (eps <= 0) return config.Bad("attention.layer_norm_rms_epsilon", "a number above 0");
  LS_TRY(const auto heads, ParseGgufHeads(config, spec.embedding.hidden_size, num_layers));
  const AttentionSpec& first = heads.front();
  LS_TRY(const RopeSpec rope, ParseGgufRope(config, {.head_dim = first.head_dim,
                                                     .default_theta = query.default_theta,
                                                     .yarn_truncate = query.yarn_truncate}));
  LS_TRY(const bool q_bias, InEveryLayer(config, "attn_q.bias", num_layers));
  LS_TRY(const bool k_bias, InEveryLayer(config, "attn_k.bias", num_layers));
  LS_TRY(const bool v_bias, InEveryLayer(config, "attn_v.bias", num_layers));
  LS_TRY(const bool o_bias, InEveryLayer(config, "attn_output.bias", num_layers));
  for (const AttentionSpec& stated : heads) {
    if (stated.num_key_value_heads == 0 || stated.head_dim != first.head_dim)
      return config.Bad("attention.head_count_kv", "attention of one head size in every layer");
    AttentionSpec attention = stated;
    attention.rope = rope;
    attention.q_bias = q_bias;
    attention.k_bias = k_bias;
    attention.v_bias = v_bias;
    attention.o_bias = o_bias;
    LayerSpec layer;
    layer.mixer_pre_norm = RmsNorm(eps);
    layer.mlp_pre_norm = RmsNorm(eps);
    layer.mixer = std::move(attention);
    spec.layers.push_back(std::move(layer));
  }
  spec.final_norm = RmsNorm(eps);
  return spec;
}

namespace {

// llama.cpp's llama_expert_gating_func_type.
Result<RouterScoring> ParseGatingFunction(GgufConfig& config, RouterScoring otherwise) {
  LS_TRY(const int64_t function, config.Get<int64_t>("expert_gating_func", 0));
  switch (function) {
    case 0:
      return otherwise;
    case 1:
      // The same weights when they are normalised, so the family's own order stays.
      return otherwise == RouterScoring::kTopKThenSoftmax ? otherwise
                                                          : RouterScoring::kSoftmaxThenTopK;
    case 2:
      return RouterScoring::kSigmoidThenTopK;
    case 3:
      return RouterScoring::kTopKThenSoftmax;
    default:
      return config.Bad("expert_gating_func",
                        "1 (softmax), 2 (sigmoid) or 3 (softmax of the chosen)");
  }
}

Status ParseGroups(GgufConfig& config, MoeSpec& moe) {
  LS_TRY(const int64_t groups, config.Get<int64_t>("expert_group_count", 0));
  LS_TRY(const int64_t used, config.Get<int64_t>("expert_group_used_count", 0));
  if (groups == 0) return {};
  if (groups < 0 || moe.num_experts % groups != 0)
    return config.Bad("expert_group_count",
                      fmt::format("a divisor of the {} experts", moe.num_experts));
  if (used < 1 || used > groups)
    return config.Bad("expert_group_used_count", fmt::format("1 to {} (the groups)", groups));
  if (moe.num_experts_per_tok > used * (moe.num_experts / groups))
    return config.Bad("expert_used_count", fmt::format("at most the {} experts of {} groups",
                                                       used * (moe.num_experts / groups), used));
  // DeepSeek-V2 scores by softmax and ranks groups by their best score; V3 by sigmoid and the best
  // two.
  const bool v3 = moe.router.scoring == RouterScoring::kSigmoidThenTopK;
  moe.router.groups =
      RouterGroups{.n_group = groups, .topk_group = used, .best_per_group = v3 ? 2 : 1};
  return {};
}

}  // namespace

Result<MoeSpec> ParseGgufMoe(GgufConfig& config, const GgufMoeQuery& query) {
  MoeSpec moe;
  LS_TRY(moe.num_experts, config.RequireCount("expert_count", kMaxExpertsPerLayer));
  LS_TRY(moe.num_experts_per_tok, config.RequireCount("expert_used_count", moe.num_experts));
  LS_TRY(moe.expert.intermediate_size, config.GetSize("expert_feed_forward_length", 0));
  // Beside the experts' own it counts for nothing here; llama.cpp sizes Granite's experts by it.
  config.Ignore("feed_forward_length");
  if (moe.expert.intermediate_size == 0) {
    LS_TRY(moe.expert.intermediate_size, config.RequireSize("feed_forward_length"));
    if (query.feed_forward_is_sum) {
      if (moe.expert.intermediate_size % moe.num_experts_per_tok != 0)
        return config.Bad("feed_forward_length", fmt::format("a multiple of expert_used_count {}",
                                                             moe.num_experts_per_tok));
      moe.expert.intermediate_size /= moe.num_experts_per_tok;
    }
  }
  RouterSpec& router = moe.router;
  LS_TRY(router.scoring, ParseGatingFunction(config, query.scoring));
  LS_TRY(router.normalize_top_k,
         config.Get<bool>("expert_weights_norm", bool{query.normalize_top_k}));
  if (router.normalize_top_k) router.normalize_epsilon = query.normalize_epsilon;
  LS_TRY(router.routed_scaling.value, GetGgufPositive(config, "expert_weights_scale", 1));
  LS_RETURN_IF_ERROR(ParseGroups(config, moe));
  return moe;
}

}  // namespace lockstep

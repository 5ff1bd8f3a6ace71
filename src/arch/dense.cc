#include "arch/dense.h"

#include <algorithm>
#include <cmath>

#include "arch/gguf_presence.h"

namespace lockstep {

NormSpec LayerNorm(double eps, bool bias) {
  return {.kind = NormKind::kLayer, .eps = eps, .bias = bias};
}

LayerSpec MakeLayer(const DecoderFacts& decoder, MixerSpec mixer) {
  LayerSpec layer = decoder.layer;
  layer.mixer = std::move(mixer);
  layer.mlp = decoder.mlp;
  return layer;
}

ModelSpec Repeat(DecoderFacts decoder) {
  const AttentionSpec attention = decoder.attention;
  return RepeatWith(std::move(decoder), [&](int64_t) { return attention; });
}

Result<DecoderFacts> ParseDense(HfConfig& config, const DenseQuery& defaults) {
  DecoderFacts decoder;
  LS_TRY(decoder.spec, ParseCommon(config, defaults.common));
  LS_TRY(decoder.num_layers, ParseNumLayers(config, defaults.num_hidden_layers));
  LS_TRY(decoder.attention, ParseHeads(config, decoder.spec.embedding.hidden_size, defaults.heads));
  double eps = defaults.eps;
  if (!defaults.eps_key.empty()) {
    LS_TRY(eps, GetPositive(config, defaults.eps_key, eps));
  }
  const NormSpec norm =
      defaults.norm == NormKind::kRms ? RmsNorm(eps) : LayerNorm(eps, /*bias=*/true);
  decoder.layer.mixer_pre_norm = norm;
  decoder.layer.mlp_pre_norm = norm;
  decoder.spec.final_norm = norm;
  LS_TRY(decoder.mlp.intermediate_size,
         defaults.intermediate_size > 0
             ? config.GetSize("intermediate_size", defaults.intermediate_size)
             : config.RequireSize("intermediate_size"));
  LS_TRY(decoder.mlp.activation,
         ParseActivation(config, defaults.activation_key, defaults.activation));
  if (defaults.one_rope) {
    RopeQuery query = defaults.rope;
    query.head_dim = decoder.attention.head_dim;
    query.max_position_embeddings = decoder.spec.max_position_embeddings;
    LS_TRY(decoder.attention.rope, ParseRope(config, query));
  }
  return decoder;
}

Status ParseAttentionBias(HfConfig& config, bool otherwise, bool with_o, AttentionSpec& attention) {
  LS_TRY(const bool bias, config.Get<bool>("attention_bias", bool{otherwise}));
  attention.q_bias = attention.k_bias = attention.v_bias = bias;
  attention.o_bias = with_o && bias;
  return {};
}

namespace {

// One number for all layers; a file that varies it has another architecture.
Result<int64_t> UniformSize(GgufConfig& config, std::string_view key, int64_t num_layers) {
  LS_TRY(const std::vector<int64_t> sizes, config.RequirePerLayer(key, num_layers));
  for (const int64_t size : sizes)
    if (size != sizes[0]) return config.Bad(key, "the same number for all layers");
  if (sizes[0] < 1) return config.Bad(key, "at least 1");
  return sizes[0];
}

}  // namespace

Result<DecoderFacts> ParseGgufDense(GgufConfig& config, const GgufDenseQuery& defaults) {
  DecoderFacts decoder;
  LS_TRY(decoder.spec, ParseGgufCommon(config));
  LS_TRY(decoder.num_layers, config.RequireLayers());
  LS_TRY(const auto heads,
         ParseGgufHeads(config, decoder.spec.embedding.hidden_size, decoder.num_layers));
  AttentionSpec& attention = decoder.attention;
  attention = heads[0];
  for (const AttentionSpec& layer : heads)
    if (layer.num_attention_heads != attention.num_attention_heads ||
        layer.num_key_value_heads != attention.num_key_value_heads ||
        layer.num_key_value_heads == 0)
      return config.Bad("attention.head_count_kv", "the same heads in all layers");
  const auto present = [&](std::string_view tensor) {
    return InEveryLayer(config, tensor, decoder.num_layers);
  };
  LS_TRY(const bool qkv_bias, present("attn_qkv.bias"));
  LS_TRY(attention.q_bias, present("attn_q.bias"));
  LS_TRY(attention.k_bias, present("attn_k.bias"));
  LS_TRY(attention.v_bias, present("attn_v.bias"));
  if (qkv_bias) attention.q_bias = attention.k_bias = attention.v_bias = true;
  LS_TRY(attention.o_bias, present("attn_output.bias"));

  const std::string_view eps_key = defaults.norm == NormKind::kRms
                                       ? "attention.layer_norm_rms_epsilon"
                                       : "attention.layer_norm_epsilon";
  LS_TRY(const double eps, config.Require<double>(eps_key));
  if (!(eps > 0)) return config.Bad(eps_key, "a number above 0");
  NormSpec norm =
      defaults.norm == NormKind::kRms ? RmsNorm(eps) : LayerNorm(eps, defaults.norm_bias);
  norm.weight_offset = defaults.weight_offset;
  decoder.layer.mixer_pre_norm = norm;
  decoder.layer.mlp_pre_norm = norm;
  decoder.spec.final_norm = norm;

  LS_TRY(decoder.mlp.intermediate_size,
         UniformSize(config, "feed_forward_length", decoder.num_layers));
  decoder.mlp.gated = defaults.gated;
  decoder.mlp.activation = defaults.activation;
  LS_TRY(decoder.mlp.up_bias, present("ffn_up.bias"));
  LS_TRY(decoder.mlp.down_bias, present("ffn_down.bias"));

  if (defaults.has_rope) {
    GgufRopeQuery query = defaults.rope;
    query.head_dim = attention.head_dim;
    LS_TRY(attention.rope, ParseGgufRope(config, query));
  }
  return decoder;
}

Result<std::vector<bool>> GgufSlidingLayers(GgufConfig& config, int64_t num_layers,
                                            int64_t period) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const GgufValue* stated = config.FindRaw(kKey);
  if (stated != nullptr && stated->type == GgufType::kArray) {
    LS_TRY(std::vector<bool> sliding, config.Require<std::vector<bool>>(kKey));
    if (static_cast<int64_t>(sliding.size()) != num_layers)
      return config.Bad(kKey, fmt::format("{} bools, one per layer", num_layers));
    return sliding;
  }
  if (stated != nullptr) {
    LS_TRY(period, config.Require<int64_t>(kKey));
  }
  if (period < 1) return config.Bad(kKey, "a period of at least 1");
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) sliding.push_back(i % period < period - 1);
  return sliding;
}

Result<std::optional<int64_t>> GgufSlidingWindow(GgufConfig& config) {
  LS_TRY(const std::optional<int64_t> window, config.Find<int64_t>("attention.sliding_window"));
  if (!window || *window == 0) return std::optional<int64_t>();
  if (*window < 0 || *window > kMaxLength)
    return config.Bad("attention.sliding_window", fmt::format("a window of 0 to {}", kMaxLength));
  return window;
}

}  // namespace lockstep

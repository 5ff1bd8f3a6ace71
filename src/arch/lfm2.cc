// LFM2: most layers mix by a gated short convolution, some by attention (transformers:
// models/lfm2).
#include "arch/lfm2.h"

#include "arch/dense.h"

namespace lockstep {
namespace {

// layer_types, or the older full_attn_idxs; without either all layers are attention.
Result<std::vector<bool>> ParseAttentionLayers(HfConfig& config, int64_t num_layers) {
  LS_TRY(const auto types, FindLayerTypes(config, num_layers, {"full_attention", "conv"}));
  LS_TRY(const auto indices, config.Find<std::vector<int64_t>>("full_attn_idxs"));
  std::vector<bool> attends(static_cast<size_t>(num_layers), !types && !indices);
  if (types) {
    for (size_t i = 0; i < attends.size(); ++i) attends[i] = (*types)[i] == "full_attention";
  } else if (indices) {
    for (const int64_t index : *indices) {
      if (index < 0 || index >= num_layers)
        return config.Bad("full_attn_idxs", fmt::format("layers from 0 to {}", num_layers - 1));
      attends[static_cast<size_t>(index)] = true;
    }
  }
  return attends;
}

// block_auto_adjust_ff_dim: two thirds, times a factor, rounded up to a multiple. The GGUF
// converter writes the result.
Result<int64_t> AdjustedIntermediateSize(HfConfig& config) {
  // block_ff_dim is the older key and wins.
  LS_TRY(int64_t size, config.Has("block_ff_dim") ? config.RequireSize("block_ff_dim")
                                                  : config.GetSize("intermediate_size", 12288));
  config.Ignore("intermediate_size");
  LS_TRY(const bool adjust, config.Get<bool>("block_auto_adjust_ff_dim", true));
  LS_TRY(const int64_t multiple, config.GetSize("block_multiple_of", 256));
  LS_TRY(const double factor, GetPositive(config, "block_ffn_dim_multiplier", 1));
  if (!adjust) return size;
  size = static_cast<int64_t>(static_cast<double>(2 * size) / 3);
  if (!config.IsNull("block_ffn_dim_multiplier")) {
    const double scaled = factor * static_cast<double>(size);
    if (!(scaled >= 0 && scaled <= static_cast<double>(kMaxSize)))
      return config.Bad("block_ffn_dim_multiplier", "a factor that leaves a sane size");
    size = static_cast<int64_t>(scaled);
    size = (size + multiple - 1) / multiple * multiple;
  }
  if (size < 1 || size > kMaxSize)
    return InputError("{}: the adjusted intermediate_size is {}, expected 1 to {}", config.place(),
                      size, kMaxSize);
  return size;
}

Result<ModelSpec> BuildLfm2(HfConfig& config) {
  LS_TRY(ModelSpec spec, ParseLfm2(config, {.common = {.tie_word_embeddings = true,
                                                       .max_position_embeddings = 128000,
                                                       .bos_token_id = 1,
                                                       .eos_token_id = 2,
                                                       .pad_token_id = 0}}));
  MlpSpec mlp;
  LS_TRY(mlp.intermediate_size, AdjustedIntermediateSize(config));
  for (LayerSpec& layer : spec.layers) layer.mlp = mlp;
  return spec;
}

Result<ModelSpec> BuildLfm2Gguf(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufLfm2(config));
  const auto num_layers = static_cast<int64_t>(spec.layers.size());
  LS_TRY(const auto sizes, config.RequirePerLayer("feed_forward_length", num_layers));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (sizes[i] < 1) return config.Bad("feed_forward_length", "at least 1 in every layer");
    spec.layers[i].mlp = MlpSpec{.intermediate_size = sizes[i]};
  }
  return spec;
}

constexpr auto kGgufTensors =
    JoinRules(kGgufLfm2Rules, kGgufDecoderRules, kGgufAttentionRules, kGgufDenseMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "lfm2",
     .class_name = "Lfm2ForCausalLM",
     .build = BuildLfm2,
     .tensors = kHfLfm2Rules,
     .gguf = "lfm2"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "lfm2", .build = BuildLfm2Gguf, .tensors = kGgufTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace

Result<ModelSpec> ParseLfm2(HfConfig& config, const Lfm2Defaults& defaults) {
  CommonDefaults common = defaults.common;
  // tie_embedding is the older key and wins.
  LS_TRY(const auto tied, config.Find<bool>("tie_embedding"));
  LS_TRY(ModelSpec spec, ParseCommon(config, common));
  if (tied) spec.lm_head.tied = *tied;
  LS_TRY(const int64_t num_layers, ParseNumLayers(config));
  LS_TRY(const double eps, GetPositive(config, "norm_eps", 1e-5));
  LS_TRY(AttentionSpec attention,
         ParseHeads(config, spec.embedding.hidden_size,
                    {.num_key_value_heads = defaults.num_key_value_heads}));
  LS_TRY(attention.rope,
         ParseRope(config, {.head_dim = attention.head_dim,
                            .default_theta = defaults.default_theta,
                            .max_position_embeddings = spec.max_position_embeddings}));
  attention.q_norm = attention.k_norm = RmsNorm(eps);
  ShortConvSpec conv;
  LS_TRY(conv.kernel_size, config.GetSize("conv_L_cache", 3));
  LS_TRY(conv.bias, config.Get<bool>("conv_bias", false));
  LS_TRY(const std::vector<bool> attends, ParseAttentionLayers(config, num_layers));
  spec.final_norm = RmsNorm(eps);
  for (int64_t i = 0; i < num_layers; ++i) {
    LayerSpec layer;
    layer.mixer_pre_norm = layer.mlp_pre_norm = RmsNorm(eps);
    layer.mixer = attends[static_cast<size_t>(i)] ? MixerSpec(attention) : MixerSpec(conv);
    spec.layers.push_back(std::move(layer));
  }
  // Of the training code, in the files of LFM2's first release. transformers reads none of them.
  for (const std::string_view key :
       {"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
        "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out",
        "conv_use_xavier_init", "num_heads", "use_pos_enc"})
    config.Ignore(key);
  return spec;
}

Result<ModelSpec> ParseGgufLfm2(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufCommon(config));
  LS_TRY(const int64_t num_layers, config.RequireLayers());
  LS_TRY(const double eps, config.Require<double>("attention.layer_norm_rms_epsilon"));
  if (!(eps > 0)) return config.Bad("attention.layer_norm_rms_epsilon", "a number above 0");
  LS_TRY(const auto heads, ParseGgufHeads(config, spec.embedding.hidden_size, num_layers));
  ShortConvSpec conv;
  LS_TRY(conv.kernel_size, config.RequireSize("shortconv.l_cache"));
  spec.final_norm = RmsNorm(eps);
  for (const AttentionSpec& stated : heads) {
    LayerSpec layer;
    layer.mixer_pre_norm = layer.mlp_pre_norm = RmsNorm(eps);
    layer.mixer = conv;
    if (stated.num_key_value_heads > 0) {  // 0: a convolution
      AttentionSpec attention = stated;
      LS_TRY(attention.rope, ParseGgufRope(config, {.head_dim = attention.head_dim}));
      attention.q_norm = attention.k_norm = RmsNorm(eps);
      layer.mixer = std::move(attention);
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace lockstep

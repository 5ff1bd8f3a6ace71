// LFM2-MoE: short convolutions and attention in turn, experts after the first layers.
// transformers: models/lfm2_moe.
#include "arch/decoder.h"

namespace lockstep {
namespace {

struct Feeds {
  MlpSpec dense;
  MoeSpec moe;
  int64_t num_dense_layers = 0;
};

LayerSpec MakeLayer(MixerSpec mixer, const NormSpec& norm, const Feeds& feeds, size_t index) {
  LayerSpec layer;
  layer.mixer_pre_norm = layer.mlp_pre_norm = norm;
  layer.mixer = std::move(mixer);
  if (static_cast<int64_t>(index) < feeds.num_dense_layers) {
    layer.mlp = feeds.dense;
  } else {
    layer.mlp = feeds.moe;
  }
  return layer;
}

Result<Feeds> ParseFeeds(HfConfig& config) {
  Feeds feeds;
  LS_TRY(feeds.num_dense_layers, config.Get<int64_t>("num_dense_layers", 2));
  if (feeds.num_dense_layers < 0) return config.Bad("num_dense_layers", "0 or more");
  LS_TRY(feeds.dense.intermediate_size, config.GetSize("intermediate_size", 7168));
  MoeSpec& moe = feeds.moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"num_experts"}, 32));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 4));
  LS_TRY(moe.expert.intermediate_size, config.GetSize("moe_intermediate_size", 1792));
  // Lfm2MoeTopKRouter
  moe.router.scoring = RouterScoring::kSigmoidThenTopK;
  LS_TRY(moe.router.selection_bias, config.Get<bool>("use_expert_bias", true));
  LS_TRY(moe.router.normalize_top_k, config.Get<bool>("norm_topk_prob", true));
  if (moe.router.normalize_top_k) moe.router.normalize_epsilon = 1e-6;
  LS_TRY(moe.router.routed_scaling.value, config.Get<double>("routed_scaling_factor", 1));
  return feeds;
}

Result<ModelSpec> BuildHf(HfConfig& config) {
  LS_TRY(ModelSpec spec, ParseCommon(config, {.vocab_size = 65536,
                                              .hidden_size = 2048,
                                              .tie_word_embeddings = true,
                                              .max_position_embeddings = 128000,
                                              .bos_token_id = 1,
                                              .eos_token_id = 2,
                                              .pad_token_id = 0}));
  // The older word, which wins (Lfm2MoeConfig.__post_init__).
  LS_TRY(spec.lm_head.tied, config.Get<bool>("tie_embedding", bool{spec.lm_head.tied}));
  LS_TRY(const int64_t num_layers, ParseNumLayers(config, 32));
  LS_TRY(const double eps, GetPositive(config, "norm_eps", 1e-5));
  LS_TRY(AttentionSpec attention,
         ParseHeads(config, spec.embedding.hidden_size,
                    {.num_attention_heads = 32, .num_key_value_heads = 8}));
  LS_TRY(attention.rope,
         ParseRope(config, {.head_dim = attention.head_dim,
                            .default_theta = 1e6,
                            .max_position_embeddings = spec.max_position_embeddings}));
  attention.q_norm = attention.k_norm = RmsNorm(eps);
  ShortConvSpec conv;
  LS_TRY(conv.kernel_size, config.GetSize("conv_L_cache", 3));
  LS_TRY(conv.bias, config.Get<bool>("conv_bias", false));
  LS_TRY(const auto types, FindLayerTypes(config, num_layers, {"conv", "full_attention"}));
  if (!types) return config.Bad("layer_types", "one of conv, full_attention for each layer");
  LS_TRY(const Feeds feeds, ParseFeeds(config));
  for (size_t i = 0; i < types->size(); ++i) {
    const bool is_conv = (*types)[i] == "conv";
    spec.layers.push_back(
        MakeLayer(is_conv ? MixerSpec(conv) : MixerSpec(attention), RmsNorm(eps), feeds, i));
  }
  spec.final_norm = RmsNorm(eps);
  return spec;
}

Result<ModelSpec> BuildGguf(GgufConfig& config) {
  LS_TRY(ModelSpec spec, ParseGgufCommon(config));
  LS_TRY(const int64_t num_layers, config.RequireLayers());
  LS_TRY(const double eps, config.Require<double>("attention.layer_norm_rms_epsilon"));
  if (eps <= 0) return config.Bad("attention.layer_norm_rms_epsilon", "a number above 0");
  LS_TRY(const auto heads, ParseGgufHeads(config, spec.embedding.hidden_size, num_layers));
  LS_TRY(const RopeSpec rope,
         ParseGgufRope(config, {.head_dim = heads[0].head_dim, .default_theta = 1e6}));
  ShortConvSpec conv;
  LS_TRY(conv.kernel_size, config.RequireSize("shortconv.l_cache"));
  Feeds feeds;
  LS_TRY(feeds.num_dense_layers, config.Get<int64_t>("leading_dense_block_count", 0));
  if (feeds.num_dense_layers < 0) return config.Bad("leading_dense_block_count", "0 or more");
  LS_TRY(feeds.dense.intermediate_size, config.RequireSize("feed_forward_length"));
  LS_TRY(feeds.moe, ParseGgufMoe(config, {.scoring = RouterScoring::kSigmoidThenTopK,
                                          .normalize_top_k = true,
                                          .normalize_epsilon = 1e-6}));
  feeds.moe.router.selection_bias =
      config.HasTensor(fmt::format("blk.{}.exp_probs_b.bias", feeds.num_dense_layers));
  for (size_t i = 0; i < heads.size(); ++i) {
    AttentionSpec attention = heads[i];
    attention.rope = rope;
    attention.q_norm = attention.k_norm = RmsNorm(eps);
    // llama.cpp: a layer without key-value heads is a convolution.
    const bool is_conv = attention.num_key_value_heads == 0;
    spec.layers.push_back(
        MakeLayer(is_conv ? MixerSpec(conv) : MixerSpec(attention), RmsNorm(eps), feeds, i));
  }
  spec.final_norm = RmsNorm(eps);
  return spec;
}

constexpr TensorRule kHfRules[] = {
    {.role = Role::kEmbedTokens, .name = "model.embed_tokens"},
    {.role = Role::kFinalNorm, .name = "model.embedding_norm"},
    {.role = Role::kLmHead, .name = "lm_head"},
    {.role = Role::kMixerPreNorm, .name = "model.layers.{layer}.operator_norm"},
    {.role = Role::kMlpPreNorm, .name = "model.layers.{layer}.ffn_norm"},
    {.role = Role::kQProj, .name = "model.layers.{layer}.self_attn.q_proj"},
    {.role = Role::kKProj, .name = "model.layers.{layer}.self_attn.k_proj"},
    {.role = Role::kVProj, .name = "model.layers.{layer}.self_attn.v_proj"},
    {.role = Role::kOProj, .name = "model.layers.{layer}.self_attn.out_proj"},
    {.role = Role::kQNorm, .name = "model.layers.{layer}.self_attn.q_layernorm"},
    {.role = Role::kKNorm, .name = "model.layers.{layer}.self_attn.k_layernorm"},
    {.role = Role::kConvInProj, .name = "model.layers.{layer}.conv.in_proj"},
    {.role = Role::kConv, .name = "model.layers.{layer}.conv.conv"},
    {.role = Role::kConvOutProj, .name = "model.layers.{layer}.conv.out_proj"},
    {.role = Role::kGateProj, .name = "model.layers.{layer}.feed_forward.w1"},
    {.role = Role::kUpProj, .name = "model.layers.{layer}.feed_forward.w3"},
    {.role = Role::kDownProj, .name = "model.layers.{layer}.feed_forward.w2"},
    {.role = Role::kRouter, .name = "model.layers.{layer}.feed_forward.gate"},
    {.role = Role::kRouterSelectionBias,
     .name = "model.layers.{layer}.feed_forward.expert_bias",
     .suffix = TensorSuffix::kBare},
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.feed_forward.experts.{expert}.w1"},
    {.role = Role::kExpertUpProj, .name = "model.layers.{layer}.feed_forward.experts.{expert}.w3"},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.feed_forward.experts.{expert}.w2"},
    // As transformers 5's modules hold the experts.
    {.role = Role::kExpertGateProj,
     .name = "model.layers.{layer}.feed_forward.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertUpProj,
     .name = "model.layers.{layer}.feed_forward.experts.gate_up_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true,
     .fused = kExpertGateAndUp},
    {.role = Role::kExpertDownProj,
     .name = "model.layers.{layer}.feed_forward.experts.down_proj",
     .suffix = TensorSuffix::kBare,
     .stacked_experts = true},
};
constexpr TensorRule kGgufOwnRules[] = {
    {.role = Role::kFinalNorm, .name = "token_embd_norm"},
    {.role = Role::kConvInProj, .name = "blk.{layer}.shortconv.in_proj"},
    {.role = Role::kConv, .name = "blk.{layer}.shortconv.conv"},
    {.role = Role::kConvOutProj, .name = "blk.{layer}.shortconv.out_proj"},
};
constexpr auto kGgufRules = JoinRules(kGgufOwnRules, kGgufDecoderRules, kGgufAttentionRules,
                                      kGgufDenseMlpRules, kGgufExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "lfm2_moe", .build = BuildHf, .tensors = kHfRules},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "lfm2moe", .build = BuildGguf, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

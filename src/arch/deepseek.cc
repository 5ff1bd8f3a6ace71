// DeepSeek-V2 and V3: latent attention, leading dense layers, grouped routing, shared experts.
// transformers: models/deepseek_v2, models/deepseek_v3.
#include <algorithm>
#include <cmath>

#include "arch/decoder.h"

namespace lockstep {
namespace {

// DeepseekV3RMSNorm's default: the two latent norms do not read rms_norm_eps.
constexpr double kLatentEps = 1e-6;

double YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// yarn_apply_mscale: the query scale times mscale squared.
double QueryScale(const MlaSpec& mla, double mscale) {
  const auto length = static_cast<double>(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  return mscale * mscale / std::sqrt(length);
}

// Products that the shapes of the weights are made of.
Status CheckSizes(const std::string& place, const MlaSpec& mla) {
  const int64_t widest =
      std::max(mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.qk_nope_head_dim + mla.v_head_dim);
  if (mla.num_attention_heads > kMaxSize / widest)
    return InputError("{}: {} heads of {} elements are more than {}, the most of a dimension",
                      place, mla.num_attention_heads, widest, kMaxSize);
  return {};
}

struct Defaults {
  int64_t vocab_size, hidden_size, intermediate_size, moe_intermediate_size;
  int64_t num_layers, num_heads, max_position_embeddings;
  std::optional<int64_t> bos, eos;
  int64_t n_routed_experts, n_shared_experts, first_k_dense_replace;
};

// rope_type is not default and mscale_all_dim is stated: mscale_all_dim, else 0.
Result<double> MscaleAllDim(HfConfig& config) {
  const std::string_view key = config.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!config.Has(key)) return 0;
  LS_TRY(HfConfig * rope, config.RequireObject(key));
  // ParseRope has checked the dictionary's other keys.
  for (const auto& [name, value] : config.FindRaw(key)->items()) rope->Ignore(name);
  return rope->Get<double>("mscale_all_dim", 0);
}

Result<MlaSpec> ParseMla(HfConfig& config, const Defaults& defaults, int64_t max_length,
                         RopeLayout layout) {
  MlaSpec mla;
  LS_TRY(mla.num_attention_heads, config.GetSize("num_attention_heads", defaults.num_heads));
  LS_TRY(const int64_t kv_heads, config.GetSize("num_key_value_heads", mla.num_attention_heads));
  if (kv_heads != mla.num_attention_heads)
    return config.Bad("num_key_value_heads",
                      fmt::format("num_attention_heads, {}", mla.num_attention_heads));
  // The class default is a rank of 1536; null in the file is a model without the first projection.
  const bool has_rank = config.Has("q_lora_rank");
  if (has_rank) {
    LS_TRY(mla.q_lora_rank, config.RequireSize("q_lora_rank"));
  } else if (!config.IsNull("q_lora_rank")) {
    mla.q_lora_rank = 1536;
  }
  LS_TRY(mla.kv_lora_rank, config.GetSize("kv_lora_rank", 512));
  LS_TRY(mla.qk_nope_head_dim, config.GetSize("qk_nope_head_dim", 128));
  LS_TRY(mla.qk_rope_head_dim, config.GetSize("qk_rope_head_dim", 64));
  LS_TRY(mla.v_head_dim, config.GetSize("v_head_dim", 128));
  config.Ignore("head_dim");     // set from qk_rope_head_dim
  config.Ignore("qk_head_dim");  // their sum
  LS_RETURN_IF_ERROR(CheckSizes(config.place(), mla));
  LS_TRY(mla.bias, config.Get<bool>("attention_bias", false));
  if (mla.q_lora_rank) mla.q_a_norm = RmsNorm(kLatentEps);
  mla.kv_a_norm = RmsNorm(kLatentEps);
  LS_TRY(mla.rope, ParseRope(config, {.head_dim = mla.qk_rope_head_dim,
                                      .layout = layout,
                                      .max_position_embeddings = max_length}));
  double mscale = 1;
  if (mla.rope.scaling) {
    LS_TRY(const double all_dim, MscaleAllDim(config));
    const auto* yarn = std::get_if<YarnScaling>(&*mla.rope.scaling);
    if (all_dim != 0 && yarn == nullptr)
      return UnsupportedError("{}: mscale_all_dim beside a rope_type that is not yarn",
                              config.place());
    if (all_dim != 0) mscale = YarnMscale(yarn->factor, all_dim);
  }
  mla.query_scale.value = QueryScale(mla, mscale);
  return mla;
}

// The experts without their router.
Result<MoeSpec> ParseExperts(HfConfig& config, const Defaults& defaults, const MlpSpec& dense) {
  MoeSpec moe;
  LS_TRY(moe.num_experts, ParseNumExperts(config, {"n_routed_experts"}, defaults.n_routed_experts));
  LS_TRY(moe.expert.intermediate_size,
         config.GetSize("moe_intermediate_size", defaults.moe_intermediate_size));
  moe.expert.activation = dense.activation;
  LS_TRY(const int64_t shared,
         config.Get<int64_t>("n_shared_experts", int64_t{defaults.n_shared_experts}));
  if (shared < 1 || shared > kMaxExpertsPerLayer)
    return config.Bad("n_shared_experts", fmt::format("1 to {}", kMaxExpertsPerLayer));
  // DeepseekV3MoE: one MLP, as wide as the shared experts together; biased like the dense one.
  SharedExpertSpec shared_expert{.mlp = dense};
  shared_expert.mlp.intermediate_size = moe.expert.intermediate_size * shared;
  moe.shared_expert = shared_expert;
  LS_TRY(const double scaling, config.Get<double>("routed_scaling_factor", 1));
  moe.router.routed_scaling.value = scaling;
  return moe;
}

Status ParseGroups(HfConfig& config, int64_t n_group, int64_t topk_group, int64_t best_per_group,
                   MoeSpec& moe) {
  RouterGroups groups{.best_per_group = best_per_group};
  LS_TRY(groups.n_group, config.Get<int64_t>("n_group", int64_t{n_group}));
  LS_TRY(groups.topk_group, config.Get<int64_t>("topk_group", int64_t{topk_group}));
  if (groups.n_group < 1 || moe.num_experts % groups.n_group != 0)
    return config.Bad("n_group", fmt::format("a divisor of the {} experts", moe.num_experts));
  const int64_t size = moe.num_experts / groups.n_group;
  if (size < best_per_group)
    return config.Bad("n_group", fmt::format("groups of at least {} experts", best_per_group));
  if (groups.topk_group < 1 || groups.topk_group > groups.n_group)
    return config.Bad("topk_group", fmt::format("1 to {} (the groups)", groups.n_group));
  if (moe.num_experts_per_tok > groups.topk_group * size)
    return config.Bad("num_experts_per_tok",
                      fmt::format("at most the {} experts of {} groups", groups.topk_group * size,
                                  groups.topk_group));
  moe.router.groups = groups;
  return {};
}

// A key of DeepSeek's own code that transformers does not read, because its class means one value.
Status ExpectWord(HfConfig& config, std::string_view key, std::string_view only) {
  LS_TRY(const std::string word, config.Get<std::string>(key, std::string(only)));
  if (word != only) return config.Bad(key, fmt::format("\"{}\"", only));
  return {};
}

struct Parts {
  ModelSpec spec;
  MlaSpec mla;
  MlpSpec dense;
  double eps = 0;
  int64_t num_layers = 0;
  int64_t num_dense = 0;
};

Result<Parts> ParseParts(HfConfig& config, const Defaults& defaults, RopeLayout layout) {
  Parts parts;
  LS_TRY(parts.spec,
         ParseCommon(config, {.vocab_size = defaults.vocab_size,
                              .hidden_size = defaults.hidden_size,
                              .max_position_embeddings = defaults.max_position_embeddings,
                              .bos_token_id = defaults.bos,
                              .eos_token_id = defaults.eos}));
  LS_TRY(parts.num_layers, ParseNumLayers(config, defaults.num_layers));
  LS_TRY(parts.eps, GetPositive(config, "rms_norm_eps", 1e-6));
  LS_TRY(parts.mla, ParseMla(config, defaults, parts.spec.max_position_embeddings, layout));
  LS_TRY(parts.dense.intermediate_size,
         config.GetSize("intermediate_size", defaults.intermediate_size));
  LS_TRY(parts.dense.activation, ParseActivation(config, "hidden_act", "silu"));
  LS_TRY(parts.num_dense,
         config.Get<int64_t>("first_k_dense_replace", int64_t{defaults.first_k_dense_replace}));
  if (parts.num_dense < 0) return config.Bad("first_k_dense_replace", "0 or more");
  LS_TRY(const int64_t frequency, config.Get<int64_t>("moe_layer_freq", 1));
  if (frequency != 1) return config.Bad("moe_layer_freq", "1 (experts in every later layer)");
  // Of training, of parallelism, and of the layers that predict further tokens.
  for (const std::string_view key :
       {"aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers", "num_mtp_layers"})
    config.Ignore(key);
  return parts;
}

ModelSpec Assemble(Parts parts, const MoeSpec& moe) {
  for (int64_t i = 0; i < parts.num_layers; ++i) {
    LayerSpec layer;
    layer.mixer_pre_norm = layer.mlp_pre_norm = RmsNorm(parts.eps);
    layer.mixer = parts.mla;
    if (i < parts.num_dense) {
      layer.mlp = parts.dense;
    } else {
      layer.mlp = moe;
    }
    parts.spec.layers.push_back(std::move(layer));
  }
  parts.spec.final_norm = RmsNorm(parts.eps);
  return std::move(parts.spec);
}

Result<ModelSpec> BuildV3(HfConfig& config) {
  constexpr Defaults kDefaults = {.vocab_size = 129280,
                                  .hidden_size = 7168,
                                  .intermediate_size = 18432,
                                  .moe_intermediate_size = 2048,
                                  .num_layers = 61,
                                  .num_heads = 128,
                                  .max_position_embeddings = 4096,
                                  .bos = 0,
                                  .eos = 1,
                                  .n_routed_experts = 256,
                                  .n_shared_experts = 1,
                                  .first_k_dense_replace = 3};
  LS_TRY(const bool interleave, config.Get<bool>("rope_interleave", true));
  LS_TRY(Parts parts,
         ParseParts(config, kDefaults, interleave ? RopeLayout::kInterleaved : RopeLayout::kHalf));
  LS_TRY(MoeSpec moe, ParseExperts(config, kDefaults, parts.dense));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 8));
  LS_RETURN_IF_ERROR(ExpectWord(config, "scoring_func", "sigmoid"));
  LS_RETURN_IF_ERROR(ExpectWord(config, "topk_method", "noaux_tc"));
  // DeepseekV3TopkRouter
  moe.router.scoring = RouterScoring::kSigmoidThenTopK;
  moe.router.selection_bias = true;
  LS_RETURN_IF_ERROR(ParseGroups(config, 8, 4, 2, moe));
  LS_TRY(moe.router.normalize_top_k, config.Get<bool>("norm_topk_prob", true));
  if (moe.router.normalize_top_k) moe.router.normalize_epsilon = 1e-20;
  if (!config.Has("routed_scaling_factor")) moe.router.routed_scaling.value = 2.5;
  return Assemble(std::move(parts), moe);
}

Result<ModelSpec> BuildV2(HfConfig& config) {
  constexpr Defaults kDefaults = {.vocab_size = 102400,
                                  .hidden_size = 4096,
                                  .intermediate_size = 11008,
                                  .moe_intermediate_size = 1407,
                                  .num_layers = 32,
                                  .num_heads = 32,
                                  .max_position_embeddings = 2048,
                                  .bos = 1,
                                  .eos = 2,
                                  .n_routed_experts = 64,
                                  .n_shared_experts = 2,
                                  .first_k_dense_replace = 0};
  LS_TRY(Parts parts, ParseParts(config, kDefaults, RopeLayout::kInterleaved));
  LS_TRY(const bool mlp_bias, config.Get<bool>("mlp_bias", false));
  parts.dense.up_bias = parts.dense.down_bias = mlp_bias;
  LS_TRY(MoeSpec moe, ParseExperts(config, kDefaults, parts.dense));
  LS_TRY(moe.num_experts_per_tok, ParseExpertsPerToken(config, moe.num_experts, 0));
  LS_RETURN_IF_ERROR(ExpectWord(config, "scoring_func", "softmax"));
  // DeepseekV2TopkRouter: softmax over all, never normalised.
  config.Ignore("norm_topk_prob");
  LS_TRY(const std::string method, config.Get<std::string>("topk_method", "greedy"));
  if (method == "group_limited_greedy") {
    LS_RETURN_IF_ERROR(ParseGroups(config, 0, 0, 1, moe));
  } else if (method != "greedy") {
    return config.Bad("topk_method", "greedy or group_limited_greedy");
  }
  config.Ignore("n_group");
  config.Ignore("topk_group");
  return Assemble(std::move(parts), moe);
}

// --- GGUF ---

Result<MlaSpec> ParseGgufMla(GgufConfig& config, int64_t num_layers) {
  MlaSpec mla;
  LS_TRY(const auto heads, config.RequirePerLayer("attention.head_count", num_layers));
  mla.num_attention_heads = heads[0];
  for (const int64_t count : heads)
    if (count < 1 || count != heads[0])
      return config.Bad("attention.head_count", "the same number above 0 in every layer");
  config.Ignore("attention.head_count_kv");  // 1 where the file has attn_k_b, else head_count
  LS_TRY(const int64_t q_rank, config.GetSize("attention.q_lora_rank", 0));
  if (q_rank > 0) mla.q_lora_rank = q_rank;
  LS_TRY(mla.kv_lora_rank, config.RequireSize("attention.kv_lora_rank"));
  LS_TRY(mla.qk_rope_head_dim, config.RequireSize("rope.dimension_count"));
  // The lengths of a head. Files with attn_k_b state those of the latent vector as key_length and
  // value_length, and the head's beside them.
  const bool latent = config.FindRaw("attention.key_length_mla") != nullptr;
  const std::string_view key = latent ? "attention.key_length_mla" : "attention.key_length";
  const std::string_view value = latent ? "attention.value_length_mla" : "attention.value_length";
  LS_TRY(const int64_t key_length, config.RequireSize(key));
  LS_TRY(mla.v_head_dim, config.RequireSize(value));
  config.Ignore("attention.key_length");
  config.Ignore("attention.value_length");
  mla.qk_nope_head_dim = key_length - mla.qk_rope_head_dim;
  if (mla.qk_nope_head_dim < 1)
    return config.Bad(key, fmt::format("more than rope.dimension_count {}", mla.qk_rope_head_dim));
  LS_RETURN_IF_ERROR(CheckSizes(config.place(), mla));
  if (mla.q_lora_rank) mla.q_a_norm = RmsNorm(kLatentEps);
  mla.kv_a_norm = RmsNorm(kLatentEps);
  LS_TRY(mla.rope, ParseGgufRope(config, {.head_dim = mla.qk_rope_head_dim,
                                          .layout = RopeLayout::kInterleaved,
                                          .deepseek_mscale = true}));
  double mscale = 1;
  const auto* yarn = mla.rope.scaling ? std::get_if<YarnScaling>(&*mla.rope.scaling) : nullptr;
  if (yarn != nullptr) {
    // Stated as 0.1 * mscale_all_dim.
    LS_TRY(const double multiplier, config.Get<double>("rope.scaling.yarn_log_multiplier", 0));
    mscale = YarnMscale(yarn->factor, multiplier / 0.1);
  }
  mla.query_scale.value = QueryScale(mla, mscale);
  return mla;
}

// llama.cpp splits kv_b into one tensor for keys, transposed head by head, and one for values.
Status CheckJoinedKvB(const GgufConfig& config) {
  if (config.HasTensor("blk.0.attn_kv_b.weight") || !config.HasTensor("blk.0.attn_k_b.weight"))
    return {};
  return UnsupportedError(
      "{}: has the tensors \"blk.0.attn_k_b.weight\" (keys transposed head by head) and "
      "\"blk.0.attn_v_b.weight\", expected \"blk.0.attn_kv_b.weight\", in which both lie row by "
      "row "
      "(converters of before April 2025 wrote it)",
      config.place());
}

Result<ModelSpec> BuildGguf(GgufConfig& config) {
  LS_RETURN_IF_ERROR(CheckJoinedKvB(config));
  Parts parts;
  LS_TRY(parts.spec, ParseGgufCommon(config));
  LS_TRY(parts.num_layers, config.RequireLayers());
  LS_TRY(parts.eps, config.Require<double>("attention.layer_norm_rms_epsilon"));
  if (parts.eps <= 0) return config.Bad("attention.layer_norm_rms_epsilon", "a number above 0");
  LS_TRY(parts.mla, ParseGgufMla(config, parts.num_layers));
  LS_TRY(parts.dense.intermediate_size, config.RequireSize("feed_forward_length"));
  LS_TRY(parts.num_dense, config.Get<int64_t>("leading_dense_block_count", 0));
  if (parts.num_dense < 0) return config.Bad("leading_dense_block_count", "0 or more");

  // Without expert_gating_func the file is of V2, whose router is a softmax.
  LS_TRY(MoeSpec moe, ParseGgufMoe(config, {.normalize_epsilon = 1e-20}));
  moe.router.selection_bias =
      config.HasTensor(fmt::format("blk.{}.exp_probs_b.bias", parts.num_dense));
  LS_TRY(const int64_t shared, config.RequireCount("expert_shared_count", kMaxExpertsPerLayer));
  moe.shared_expert =
      SharedExpertSpec{.mlp = {.intermediate_size = moe.expert.intermediate_size * shared}};
  return Assemble(std::move(parts), moe);
}

constexpr TensorRule kHfOwnRules[] = {
    {.role = Role::kQProj, .name = "model.layers.{layer}.self_attn.q_proj"},
    {.role = Role::kQAProj, .name = "model.layers.{layer}.self_attn.q_a_proj"},
    {.role = Role::kQANorm, .name = "model.layers.{layer}.self_attn.q_a_layernorm"},
    {.role = Role::kQBProj, .name = "model.layers.{layer}.self_attn.q_b_proj"},
    {.role = Role::kKvAProj, .name = "model.layers.{layer}.self_attn.kv_a_proj_with_mqa"},
    {.role = Role::kKvANorm, .name = "model.layers.{layer}.self_attn.kv_a_layernorm"},
    {.role = Role::kKvBProj, .name = "model.layers.{layer}.self_attn.kv_b_proj"},
    {.role = Role::kOProj, .name = "model.layers.{layer}.self_attn.o_proj"},
    {.role = Role::kRouterSelectionBias,
     .name = "model.layers.{layer}.mlp.gate.e_score_correction_bias",
     .suffix = TensorSuffix::kBare},
    {.role = Role::kSharedGateProj, .name = "model.layers.{layer}.mlp.shared_experts.gate_proj"},
    {.role = Role::kSharedUpProj, .name = "model.layers.{layer}.mlp.shared_experts.up_proj"},
    {.role = Role::kSharedDownProj, .name = "model.layers.{layer}.mlp.shared_experts.down_proj"},
};
constexpr TensorRule kGgufOwnRules[] = {
    {.role = Role::kQProj, .name = "blk.{layer}.attn_q"},
    {.role = Role::kQAProj, .name = "blk.{layer}.attn_q_a"},
    {.role = Role::kQANorm, .name = "blk.{layer}.attn_q_a_norm"},
    {.role = Role::kQBProj, .name = "blk.{layer}.attn_q_b"},
    {.role = Role::kKvAProj, .name = "blk.{layer}.attn_kv_a_mqa"},
    {.role = Role::kKvANorm, .name = "blk.{layer}.attn_kv_a_norm"},
    {.role = Role::kKvBProj, .name = "blk.{layer}.attn_kv_b"},
    {.role = Role::kOProj, .name = "blk.{layer}.attn_output"},
};
constexpr auto kHfRules = JoinRules(kHfDecoderRules, kHfOwnRules, kHfDenseMlpRules,
                                    kHfQwenExpertRules, kHfStackedExpertRules);
constexpr auto kGgufRules = JoinRules(kGgufDecoderRules, kGgufOwnRules, kGgufDenseMlpRules,
                                      kGgufExpertRules, kGgufSharedExpertRules);
constexpr HfArchitecture kHf[] = {
    {.model_type = "deepseek_v2",
     .class_name = "DeepseekV2ForCausalLM",
     .build = BuildV2,
     .tensors = kHfRules,
     .gguf = "deepseek2"},
    {.model_type = "deepseek_v3",
     .class_name = "DeepseekV3ForCausalLM",
     .build = BuildV3,
     .tensors = kHfRules,
     .gguf = "deepseek2"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "deepseek2", .build = BuildGguf, .tensors = kGgufRules},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

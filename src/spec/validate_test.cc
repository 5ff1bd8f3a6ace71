#include "spec/validate.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "spec/random_spec.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One layer of each kind: attention with a dense MLP, MLA with experts, and a short convolution.
ModelSpec ValidSpec() {
  ModelSpec spec;
  spec.architecture = "valid";
  spec.max_position_embeddings = 128;
  spec.embedding = {.vocab_size = 100, .hidden_size = 32};
  AttentionSpec attention{.num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 8};
  attention.rope = RopeSpec{.theta = 10000, .rotary_dim = 8};
  MlaSpec mla{.num_attention_heads = 2,
              .q_lora_rank = 8,
              .kv_lora_rank = 8,
              .qk_nope_head_dim = 8,
              .qk_rope_head_dim = 4,
              .v_head_dim = 8,
              .rope = {.theta = 10000, .rotary_dim = 4},
              .q_a_norm = NormSpec{}};
  MoeSpec moe{.num_experts = 8, .num_experts_per_tok = 2, .expert = {.intermediate_size = 16}};
  moe.shared_expert = SharedExpertSpec{.mlp = {.intermediate_size = 16}};
  const MlpSpec mlp{.intermediate_size = 64};
  spec.layers = {LayerSpec{.mixer = attention, .mlp = mlp}, LayerSpec{.mixer = mla, .mlp = moe},
                 LayerSpec{.mixer = ShortConvSpec{3}, .mlp = mlp}};
  return spec;
}

AttentionSpec& Attention(ModelSpec& s) { return std::get<AttentionSpec>(s.layers[0].mixer); }
MlpSpec& Mlp(ModelSpec& s) { return std::get<MlpSpec>(s.layers[0].mlp); }
MlaSpec& Mla(ModelSpec& s) { return std::get<MlaSpec>(s.layers[1].mixer); }
MoeSpec& Moe(ModelSpec& s) { return std::get<MoeSpec>(s.layers[1].mlp); }
void SetScaling(ModelSpec& s, RopeScaling scaling) { Attention(s).rope->scaling = scaling; }

TEST(Validate, AcceptsEveryRandomSpec) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Status status = Validate(RandomSpec(seed));
    EXPECT_TRUE(status) << "seed " << seed << ": " << status.error().message;
  }
}

struct Breach {
  void (*make)(ModelSpec& spec);
  const char* message;  // how it begins
};

const Breach kBreaches[] = {
    // clang-format off
    {[](ModelSpec& s) { s.architecture += '\xff'; }, "architecture: expected UTF-8"},
    {[](ModelSpec& s) { s.max_position_embeddings = 0; }, "max_position_embeddings: expected a size from 1 to 2147483648, found 0"},
    {[](ModelSpec& s) { s.embedding.vocab_size = 0; }, "embedding.vocab_size: expected a size from 1 to 2147483648, found 0"},
    {[](ModelSpec& s) { s.embedding.vocab_size = kMaxRows + 1; }, "embedding.vocab_size:"},
    {[](ModelSpec& s) { s.embedding.hidden_size = -32; }, "embedding.hidden_size: expected a size from 1 to 16777216, found -32"},
    {[](ModelSpec& s) { s.embedding.hidden_size = kMaxWidth + 1; }, "embedding.hidden_size:"},
    {[](ModelSpec& s) { s.embedding.scale.value = kNan; }, "embedding.scale.value: expected a finite number, found nan"},
    {[](ModelSpec& s) { s.embedding.scale = {.value = 0, .divide = true}; }, "embedding.scale.value: expected a divisor other than 0, found 0"},
    {[](ModelSpec& s) { s.embedding.scale.rounding = static_cast<Rounding>(9); }, "embedding.scale.rounding: expected one of none, bf16, fp16, two_decimals, found 9"},
    {[](ModelSpec& s) { s.embedding.positions = LearnedPositions{0}; }, "embedding.positions.num_positions: expected a size"},
    {[](ModelSpec& s) { s.layers.clear(); }, "layers: expected from 1 to 10000 layers, found 0"},
    {[](ModelSpec& s) { s.layers.resize(10001, s.layers[0]); }, "layers: expected from 1 to 10000 layers, found 10001"},
    {[](ModelSpec& s) { s.layers[1].residual.value = kInf; }, "layers[1].residual.value: expected a finite number, found inf"},
    {[](ModelSpec& s) { s.layers[2].wiring = static_cast<Wiring>(-1); }, "layers[2].wiring: expected one of sequential, parallel, found -1"},
    {[](ModelSpec& s) { s.layers[0].mixer_pre_norm = NormSpec{.eps = -1e-6}; }, "layers[0].mixer_pre_norm.eps: expected a finite number of at least 0, found -1e-06"},
    {[](ModelSpec& s) { s.layers[0].mixer_post_norm = NormSpec{.weight_offset = kInf}; }, "layers[0].mixer_post_norm.weight_offset: expected a finite number"},
    {[](ModelSpec& s) { s.layers[0].mlp_pre_norm = NormSpec{.bias = true}; }, "layers[0].mlp_pre_norm.bias: expected false (only a layer norm has a bias), found true"},
    {[](ModelSpec& s) { s.layers[0].mlp_post_norm = NormSpec{.eps = kNan}; }, "layers[0].mlp_post_norm.eps:"},
    {[](ModelSpec& s) { s.final_norm.eps = kInf; }, "final_norm.eps:"},
    {[](ModelSpec& s) { s.lm_head.logit_scale.value = kNan; }, "lm_head.logit_scale.value:"},
    {[](ModelSpec& s) { s.lm_head.logit_softcap = 0; }, "lm_head.logit_softcap: expected a finite number above 0, found 0"},
    // attention
    {[](ModelSpec& s) { Attention(s).num_attention_heads = 0; }, "layers[0].mixer.num_attention_heads: expected a size from 1"},
    {[](ModelSpec& s) { Attention(s).num_key_value_heads = 0; }, "layers[0].mixer.num_key_value_heads: expected a size from 1"},
    {[](ModelSpec& s) { Attention(s).num_key_value_heads = 3; }, "layers[0].mixer.num_key_value_heads: expected a divisor of num_attention_heads 4, found 3"},
    {[](ModelSpec& s) { Attention(s).num_key_value_heads = 8; }, "layers[0].mixer.num_key_value_heads: expected a divisor of num_attention_heads 4, found 8"},
    {[](ModelSpec& s) { Attention(s).head_dim = 0; }, "layers[0].mixer.head_dim: expected a size from 1"},
    {[](ModelSpec& s) { Attention(s).head_dim = kMaxWidth; }, "layers[0].mixer.head_dim: expected num_attention_heads 4 times head_dim of at most 16777216"},
    {[](ModelSpec& s) { Attention(s).query_scale.value = kNan; }, "layers[0].mixer.query_scale.value:"},
    {[](ModelSpec& s) { Attention(s).sliding_window = 0; }, "layers[0].mixer.sliding_window: expected a size from 1"},
    {[](ModelSpec& s) { Attention(s).logit_softcap = -1; }, "layers[0].mixer.logit_softcap:"},
    {[](ModelSpec& s) { Attention(s).clip_qkv = 0; }, "layers[0].mixer.clip_qkv:"},
    {[](ModelSpec& s) { Attention(s).q_norm = NormSpec{.eps = -1}; }, "layers[0].mixer.q_norm.eps:"},
    {[](ModelSpec& s) { Attention(s).k_norm = NormSpec{.bias = true}; }, "layers[0].mixer.k_norm.bias:"},
    {[](ModelSpec& s) { Attention(s).qk_norm_scope = static_cast<QkNormScope>(2); }, "layers[0].mixer.qk_norm_scope:"},
    // rope
    {[](ModelSpec& s) { Attention(s).rope->theta = 0; }, "layers[0].mixer.rope.theta: expected a finite number above 0, found 0"},
    {[](ModelSpec& s) { Attention(s).rope->rotary_dim = 7; }, "layers[0].mixer.rope.rotary_dim: expected an even size from 2 to head_dim 8, found 7"},
    {[](ModelSpec& s) { Attention(s).rope->rotary_dim = 10; }, "layers[0].mixer.rope.rotary_dim: expected an even size from 2 to head_dim 8, found 10"},
    {[](ModelSpec& s) { Attention(s).rope->rotary_dim = 0; }, "layers[0].mixer.rope.rotary_dim:"},
    {[](ModelSpec& s) { SetScaling(s, LinearScaling{0}); }, "layers[0].mixer.rope.scaling.factor:"},
    {[](ModelSpec& s) { SetScaling(s, DynamicScaling{-2, 64}); }, "layers[0].mixer.rope.scaling.factor:"},
    {[](ModelSpec& s) { SetScaling(s, DynamicScaling{2, 0}); }, "layers[0].mixer.rope.scaling.original_max_position_embeddings: expected a size"},
    {[](ModelSpec& s) { SetScaling(s, DynamicScaling{2, 64}); Attention(s).rope->rotary_dim = 2; }, "layers[0].mixer.rope.scaling: expected a rotary_dim above 2"},
    {[](ModelSpec& s) { SetScaling(s, Llama3Scaling{8, 4, 4, 64}); }, "layers[0].mixer.rope.scaling.high_freq_factor: expected a number above low_freq_factor 4, found 4"},
    {[](ModelSpec& s) { SetScaling(s, Llama3Scaling{kNan, 1, 4, 64}); }, "layers[0].mixer.rope.scaling.factor:"},
    {[](ModelSpec& s) { SetScaling(s, Llama3Scaling{8, 0, 4, 64}); }, "layers[0].mixer.rope.scaling.low_freq_factor:"},
    {[](ModelSpec& s) { SetScaling(s, Llama3Scaling{8, 1, 4, -1}); }, "layers[0].mixer.rope.scaling.original_max_position_embeddings:"},
    {[](ModelSpec& s) { SetScaling(s, YarnScaling{0, 32, 1, true, 1, 64}); }, "layers[0].mixer.rope.scaling.factor:"},
    {[](ModelSpec& s) { SetScaling(s, YarnScaling{8, 0, 1, true, 1, 64}); }, "layers[0].mixer.rope.scaling.beta_fast:"},
    {[](ModelSpec& s) { SetScaling(s, YarnScaling{8, 32, -1, true, 1, 64}); }, "layers[0].mixer.rope.scaling.beta_slow:"},
    {[](ModelSpec& s) { SetScaling(s, YarnScaling{8, 32, 1, true, kInf, 64}); }, "layers[0].mixer.rope.scaling.attention_factor:"},
    {[](ModelSpec& s) { SetScaling(s, YarnScaling{8, 32, 1, true, 1, 0}); }, "layers[0].mixer.rope.scaling.original_max_position_embeddings:"},
    {[](ModelSpec& s) { SetScaling(s, YarnScaling{8, 32, 1, true, 1, 64}); Attention(s).rope->theta = 1; }, "layers[0].mixer.rope.scaling: expected a theta above 1"},
    {[](ModelSpec& s) { SetScaling(s, LongRopeScaling{{1, 1, 1}, {1, 1, 1, 1}, 1, 64}); }, "layers[0].mixer.rope.scaling.short_factor: expected 4 factors (rotary_dim / 2), found 3"},
    {[](ModelSpec& s) { SetScaling(s, LongRopeScaling{{1, 1, 1, 1}, {}, 1, 64}); }, "layers[0].mixer.rope.scaling.long_factor: expected 4 factors"},
    {[](ModelSpec& s) { SetScaling(s, LongRopeScaling{{1, 1, 1, 1}, {1, 1, 0, 1}, 1, 64}); }, "layers[0].mixer.rope.scaling.long_factor[2]: expected a finite number above 0, found 0"},
    {[](ModelSpec& s) { SetScaling(s, LongRopeScaling{{1, 1, 1, 1}, {1, 1, 1, 1}, 0, 64}); }, "layers[0].mixer.rope.scaling.attention_factor:"},
    {[](ModelSpec& s) { SetScaling(s, LongRopeScaling{{1, 1, 1, 1}, {1, 1, 1, 1}, 1, 0}); }, "layers[0].mixer.rope.scaling.original_max_position_embeddings:"},
    {[](ModelSpec& s) { SetScaling(s, FrequencyFactors{{1, 1}}); }, "layers[0].mixer.rope.scaling.factors: expected 4 factors"},
    {[](ModelSpec& s) { SetScaling(s, FrequencyFactors{{1, 1, 1, kInf}}); }, "layers[0].mixer.rope.scaling.factors[3]:"},
    // MLA and short convolution
    {[](ModelSpec& s) { Mla(s).num_attention_heads = 0; }, "layers[1].mixer.num_attention_heads:"},
    {[](ModelSpec& s) { Mla(s).num_attention_heads = kMaxWidth; }, "layers[1].mixer.num_attention_heads: expected num_attention_heads times the widest head 16 of at most"},
    {[](ModelSpec& s) { Mla(s).q_lora_rank = 0; }, "layers[1].mixer.q_lora_rank:"},
    {[](ModelSpec& s) { Mla(s).kv_lora_rank = 0; }, "layers[1].mixer.kv_lora_rank:"},
    {[](ModelSpec& s) { Mla(s).qk_nope_head_dim = 0; }, "layers[1].mixer.qk_nope_head_dim:"},
    {[](ModelSpec& s) { Mla(s).qk_rope_head_dim = 0; }, "layers[1].mixer.qk_rope_head_dim:"},
    {[](ModelSpec& s) { Mla(s).v_head_dim = 0; }, "layers[1].mixer.v_head_dim:"},
    {[](ModelSpec& s) { Mla(s).rope.rotary_dim = 6; }, "layers[1].mixer.rope.rotary_dim: expected an even size from 2 to qk_rope_head_dim 4, found 6"},
    {[](ModelSpec& s) { Mla(s).q_a_norm.reset(); }, "layers[1].mixer.q_a_norm: expected a norm (q_lora_rank is present), found none"},
    {[](ModelSpec& s) { Mla(s).q_lora_rank.reset(); }, "layers[1].mixer.q_a_norm: expected none (q_lora_rank is absent), found a norm"},
    {[](ModelSpec& s) { Mla(s).q_a_norm->eps = -1; }, "layers[1].mixer.q_a_norm.eps:"},
    {[](ModelSpec& s) { Mla(s).kv_a_norm.eps = kNan; }, "layers[1].mixer.kv_a_norm.eps:"},
    {[](ModelSpec& s) { Mla(s).query_scale.value = kInf; }, "layers[1].mixer.query_scale.value:"},
    {[](ModelSpec& s) { s.layers[2].mixer = ShortConvSpec{0}; }, "layers[2].mixer.kernel_size: expected a size from 1"},
    // feed-forward
    {[](ModelSpec& s) { Mlp(s).intermediate_size = 0; }, "layers[0].mlp.intermediate_size: expected a size from 1"},
    {[](ModelSpec& s) { Mlp(s).intermediate_size = kMaxWidth + 1; }, "layers[0].mlp.intermediate_size:"},
    {[](ModelSpec& s) { Mlp(s).activation = static_cast<Activation>(6); }, "layers[0].mlp.activation:"},
    {[](ModelSpec& s) { Mlp(s).clamped_glu = ClampedGlu{1, 7, 1}; Mlp(s).gated = false; }, "layers[0].mlp.clamped_glu: expected none (the MLP is not gated), found one"},
    {[](ModelSpec& s) { Mlp(s).clamped_glu = ClampedGlu{1, 0, 1}; }, "layers[0].mlp.clamped_glu.limit:"},
    {[](ModelSpec& s) { Mlp(s).clamped_glu = ClampedGlu{kNan, 7, 1}; }, "layers[0].mlp.clamped_glu.alpha:"},
    {[](ModelSpec& s) { Mlp(s).clamped_glu = ClampedGlu{1, 7, kInf}; }, "layers[0].mlp.clamped_glu.up_offset:"},
    {[](ModelSpec& s) { Moe(s).num_experts = 0; }, "layers[1].mlp.num_experts:"},
    {[](ModelSpec& s) { Moe(s).num_experts_per_tok = 9; }, "layers[1].mlp.num_experts_per_tok: expected a number from 1 to num_experts 8, found 9"},
    {[](ModelSpec& s) { Moe(s).num_experts_per_tok = 0; }, "layers[1].mlp.num_experts_per_tok:"},
    {[](ModelSpec& s) { Moe(s).expert.intermediate_size = -1; }, "layers[1].mlp.expert.intermediate_size:"},
    {[](ModelSpec& s) { Moe(s).shared_expert->mlp.intermediate_size = 0; }, "layers[1].mlp.shared_expert.mlp.intermediate_size:"},
    {[](ModelSpec& s) { Moe(s).router.normalize_epsilon = -1; }, "layers[1].mlp.router.normalize_epsilon:"},
    {[](ModelSpec& s) { Moe(s).router.routed_scaling.value = kNan; }, "layers[1].mlp.router.routed_scaling.value:"},
    {[](ModelSpec& s) { Moe(s).router.scoring = static_cast<RouterScoring>(4); }, "layers[1].mlp.router.scoring:"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{3, 1}; }, "layers[1].mlp.router.groups.n_group: expected a divisor of num_experts 8, found 3"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{0, 1}; }, "layers[1].mlp.router.groups.n_group:"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{2, 3}; }, "layers[1].mlp.router.groups.topk_group: expected a number from 1 to n_group 2, found 3"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{2, 0}; }, "layers[1].mlp.router.groups.topk_group:"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{4, 2, 3}; }, "layers[1].mlp.router.groups.best_per_group: expected a number from 1 to the 2 experts of a group, found 3"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{4, 2, 0}; }, "layers[1].mlp.router.groups.best_per_group:"},
    {[](ModelSpec& s) { Moe(s).router.groups = RouterGroups{8, 1, 1}; }, "layers[1].mlp.router.groups.topk_group: expected groups that hold num_experts_per_tok 2 experts or more, found 1"},
    {[](ModelSpec& s) { Moe(s).router.sparse_mixer_jitter = 0.01; }, "layers[1].mlp.router.sparse_mixer_jitter: expected none (scoring is not sparse_mixer), found a number"},
    {[](ModelSpec& s) { Moe(s).router.scoring = RouterScoring::kSparseMixer; }, "layers[1].mlp.router.sparse_mixer_jitter: expected a number (scoring is sparse_mixer), found none"},
    {[](ModelSpec& s) { Moe(s).router.scoring = RouterScoring::kSparseMixer; Moe(s).router.sparse_mixer_jitter = -1; }, "layers[1].mlp.router.sparse_mixer_jitter: expected a finite number"},
    {[](ModelSpec& s) { Moe(s).router.scoring = RouterScoring::kSparseMixer; Moe(s).router.sparse_mixer_jitter = 0.01; Moe(s).num_experts_per_tok = 3; }, "layers[1].mlp.router.scoring: expected another scoring (sparse_mixer chooses 2 experts per token)"},
    // totals: each size is allowed, all together are not
    {[](ModelSpec& s) { Moe(s).num_experts = kMaxExperts; s.layers[0].mlp = Moe(s); }, "layers: expected at most 262144 experts together, found 524288"},
    {[](ModelSpec& s) { s.embedding.hidden_size = kMaxWidth; Mlp(s).intermediate_size = kMaxWidth; s.layers.assign(200, s.layers[0]); }, "layers: expected at most 72057594037927936 parameters, found"},
    // clang-format on
};

TEST(Validate, RefusesEachBrokenInvariant) {
  ASSERT_TRUE(Validate(ValidSpec())) << Validate(ValidSpec()).error().message;
  for (const Breach& breach : kBreaches) {
    ModelSpec spec = ValidSpec();
    breach.make(spec);
    const Status status = Validate(spec);
    ASSERT_FALSE(status) << breach.message;
    EXPECT_TRUE(status.error().message.starts_with(breach.message)) << status.error().message;
    EXPECT_NE(status.error().message.find(", found "), std::string::npos);
  }
}

TEST(Validate, AcceptsTheLimitsThemselves) {
  ModelSpec spec = ValidSpec();
  spec.layers.resize(1);
  spec.lm_head.tied = true;
  spec.embedding.vocab_size = kMaxRows;
  spec.embedding.hidden_size = kMaxWidth;
  Attention(spec).rope->rotary_dim = 2;
  Attention(spec).sliding_window = INT64_MAX;
  const Status status = Validate(spec);
  EXPECT_TRUE(status) << status.error().message;
}

TEST(Remarks, ReportTokenIdsOutsideTheVocabulary) {
  ModelSpec spec = ValidSpec();
  EXPECT_TRUE(Remarks(spec).empty());
  spec.tokens = {.bos = 100, .eos = {1, -1}, .pad = 99};
  spec.embedding.positions = LearnedPositions{64};
  EXPECT_TRUE(Validate(spec));
  EXPECT_EQ(Remarks(spec),
            (std::vector<std::string>{
                "tokens.bos: the id 100 is outside the vocabulary of 100",
                "tokens.eos[1]: the id -1 is outside the vocabulary of 100",
                "embedding.positions.num_positions: 64 learned positions are fewer than "
                "max_position_embeddings 128; no run can be longer"}));
}

}  // namespace
}  // namespace lockstep

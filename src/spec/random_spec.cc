#include "spec/random_spec.h"

#include <array>
#include <cmath>

#include "spec/field_list.h"

namespace lockstep {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): the standard library's distributions differ between
// vendors.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t Integer(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Next() % static_cast<uint64_t>(most - least + 1));
  }
  double Real(double least, double most) {
    return least + (most - least) * static_cast<double>(Next() >> 11) * 0x1p-53;
  }
  bool OneIn(int n) { return Next() % static_cast<uint64_t>(n) == 0; }
  bool Flag() { return OneIn(2); }
  template <typename T, size_t n>
  T Of(const T (&choices)[n]) {
    return choices[Next() % n];
  }
  template <typename E>
  E Enum() {
    return static_cast<E>(Next() % NamesOf<E>().size());
  }

 private:
  uint64_t state_;
};

Scale RandomScale(Random& random) {
  if (random.Flag()) return {};
  return {.value = random.Real(0.25, 4),
          .divide = random.OneIn(3),
          .rounding = random.Enum<Rounding>()};
}

NormSpec RandomNorm(Random& random) {
  NormSpec norm{.kind = random.Enum<NormKind>(), .eps = random.Of({1e-6, 1e-5})};
  if (random.OneIn(3)) norm.weight_offset = 1;
  if (random.OneIn(4)) norm.weight_rounding = random.Enum<Rounding>();
  if (random.OneIn(6)) {  // no weight: nothing to offset or to round
    norm.weight = false;
    norm.weight_offset = 0;
    norm.weight_rounding = Rounding::kNone;
  }
  norm.bias = norm.kind == NormKind::kLayer && random.Flag();
  return norm;
}

std::optional<NormSpec> MaybeNorm(Random& random) {
  if (random.Flag()) return std::nullopt;
  return RandomNorm(random);
}

std::vector<double> RandomFactors(Random& random, int64_t n) {
  std::vector<double> factors(static_cast<size_t>(n));
  for (double& factor : factors) factor = random.Real(1, 8);
  return factors;
}

RopeScaling RandomScaling(Random& random, int64_t rotary_dim) {
  const double factor = random.Real(1, 8);
  const int64_t original = random.Integer(8, 64);
  const double attention_factor = random.Real(0.5, 1.5);
  switch (random.Integer(0, 5)) {
    case 0:
      return LinearScaling{factor};
    case 1:
      if (rotary_dim <= 2) return LinearScaling{factor};  // d / (d - 2)
      return DynamicScaling{factor, original};
    case 2:
      return Llama3Scaling{factor, 1, random.Real(2, 8), original};
    case 3:
      return YarnScaling{factor, 32, 1, random.Flag(), attention_factor, original};
    case 4:
      return LongRopeScaling{RandomFactors(random, rotary_dim / 2),
                             RandomFactors(random, rotary_dim / 2), attention_factor, original};
    default:
      return FrequencyFactors{RandomFactors(random, rotary_dim / 2)};
  }
}

RopeSpec RandomRope(Random& random, int64_t head_dim) {
  RopeSpec rope{.theta = random.Of({10000.0, 500000.0, 1000000.0})};
  rope.rotary_dim = random.Flag() ? head_dim : 2 * random.Integer(1, head_dim / 2);
  rope.layout = random.Enum<RopeLayout>();
  if (random.Flag()) rope.scaling = RandomScaling(random, rope.rotary_dim);
  return rope;
}

AttentionSpec RandomAttention(Random& random) {
  AttentionSpec a;
  a.num_key_value_heads = random.Integer(1, 2);
  a.num_attention_heads = a.num_key_value_heads * random.Integer(1, 3);
  a.head_dim = random.Of({4, 8, 16});
  a.query_scale = RandomScale(random);
  a.query_scale.value /= std::sqrt(static_cast<double>(a.head_dim));
  a.q_bias = random.OneIn(3);
  a.k_bias = random.OneIn(3);
  a.v_bias = random.OneIn(3);
  a.o_bias = random.OneIn(3);
  if (!random.OneIn(4)) a.rope = RandomRope(random, a.head_dim);
  if (random.OneIn(3)) a.sliding_window = random.Integer(1, 12);
  if (random.OneIn(4)) a.logit_softcap = random.Real(5, 50);
  if (random.OneIn(3)) {
    a.q_norm = RandomNorm(random);
    a.k_norm = RandomNorm(random);
    a.qk_norm_scope = random.Enum<QkNormScope>();
  }
  if (random.OneIn(5)) a.clip_qkv = random.Real(1, 8);
  a.sinks = random.OneIn(4);
  return a;
}

MlaSpec RandomMla(Random& random) {
  MlaSpec a;
  a.num_attention_heads = random.Integer(1, 4);
  if (random.Flag()) {
    a.q_lora_rank = random.Integer(4, 16);
    a.q_a_norm = RandomNorm(random);
  }
  a.kv_lora_rank = random.Integer(4, 16);
  a.qk_nope_head_dim = random.Of({4, 8});
  a.qk_rope_head_dim = random.Of({4, 8});
  a.v_head_dim = random.Of({4, 8, 12});
  a.query_scale = RandomScale(random);
  a.bias = random.OneIn(3);
  a.rope = RandomRope(random, a.qk_rope_head_dim);
  a.kv_a_norm = RandomNorm(random);
  return a;
}

MlpSpec RandomMlp(Random& random) {
  MlpSpec mlp;
  mlp.intermediate_size = 4 * random.Integer(2, 16);
  mlp.gated = !random.OneIn(3);
  mlp.activation = random.Enum<Activation>();
  mlp.up_bias = random.OneIn(3);
  mlp.down_bias = random.OneIn(3);
  if (mlp.gated && random.OneIn(4))
    mlp.clamped_glu = ClampedGlu{random.Real(1, 2), random.Real(2, 8), random.Real(0, 1)};
  return mlp;
}

MoeSpec RandomMoe(Random& random) {
  MoeSpec moe;
  moe.router.scoring = random.Enum<RouterScoring>();
  moe.num_experts = random.Of({4, 8});
  moe.num_experts_per_tok = random.Integer(1, 3);
  if (moe.router.scoring == RouterScoring::kSparseMixer) {
    moe.num_experts_per_tok = 2;
    moe.router.sparse_mixer_jitter = random.Real(0, 0.1);
  } else {
    moe.router.normalize_top_k = random.Flag();
    if (moe.router.normalize_top_k && random.Flag()) moe.router.normalize_epsilon = 1e-20;
    moe.router.selection_bias = random.OneIn(3);
    if (random.OneIn(3)) {
      RouterGroups& groups = moe.router.groups.emplace();
      groups.n_group = 2;
      const bool one_holds_enough = moe.num_experts / 2 >= moe.num_experts_per_tok;
      groups.topk_group = one_holds_enough ? random.Integer(1, 2) : 2;
      groups.best_per_group = random.Integer(1, 2);
    }
  }
  moe.router.routed_scaling = RandomScale(random);
  moe.router.bias = random.OneIn(3);
  moe.expert = RandomMlp(random);
  if (random.OneIn(3)) moe.shared_expert = SharedExpertSpec{RandomMlp(random), random.Flag()};
  return moe;
}

LayerSpec RandomLayer(Random& random) {
  LayerSpec layer;
  layer.wiring = random.OneIn(4) ? Wiring::kParallel : Wiring::kSequential;
  layer.mixer_pre_norm = MaybeNorm(random);
  layer.mixer_post_norm = MaybeNorm(random);
  layer.mlp_pre_norm = MaybeNorm(random);
  layer.mlp_post_norm = MaybeNorm(random);
  switch (random.Integer(0, 4)) {
    case 0:
      layer.mixer = RandomMla(random);
      break;
    case 1:
      layer.mixer = ShortConvSpec{random.Integer(1, 4), random.Flag()};
      break;
    default:
      layer.mixer = RandomAttention(random);
  }
  if (random.OneIn(3)) {
    layer.mlp = RandomMoe(random);
  } else {
    layer.mlp = RandomMlp(random);
  }
  layer.residual = RandomScale(random);
  return layer;
}

}  // namespace

ModelSpec RandomSpec(uint64_t seed) {
  Random random(seed);
  ModelSpec spec;
  spec.architecture = "random";
  spec.max_position_embeddings = random.Integer(128, 256);
  spec.embedding.vocab_size = random.Integer(16, 100);
  spec.embedding.hidden_size = 8 * random.Integer(1, 8);
  spec.embedding.scale = RandomScale(random);
  if (random.OneIn(4)) spec.embedding.positions = LearnedPositions{spec.max_position_embeddings};
  const int64_t num_layers = random.Integer(1, 4);
  for (int64_t i = 0; i < num_layers; ++i) {
    // Repeated layers are the rule in models, and what grouping and joining are for.
    spec.layers.push_back(i > 0 && random.Flag() ? spec.layers.front() : RandomLayer(random));
  }
  spec.final_norm = RandomNorm(random);
  spec.lm_head.tied = random.Flag();
  spec.lm_head.bias = random.OneIn(4);
  spec.lm_head.logit_scale = RandomScale(random);
  if (random.OneIn(4)) spec.lm_head.logit_softcap = random.Real(5, 50);
  if (random.Flag()) spec.tokens.bos = random.Integer(0, spec.embedding.vocab_size - 1);
  for (int64_t n = random.Integer(0, 2); n > 0; --n)
    spec.tokens.eos.push_back(random.Integer(0, spec.embedding.vocab_size - 1));
  if (random.Flag()) spec.tokens.pad = random.Integer(0, spec.embedding.vocab_size - 1);
  return spec;
}

}  // namespace lockstep

#include "spec/validate.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "spec/field_list.h"
#include "spec/weights.h"

namespace lockstep {
namespace {

// Collects the first broken invariant under the path of the struct in hand.
class Checker {
 public:
  void Check(const ModelSpec& spec);
  Status Finish() && { return std::move(status_); }

 private:
  // Runs `check` with `step` added to the path.
  template <typename F>
  void In(std::string_view step, const F& check) {
    const size_t length = path_.size();
    if (!path_.empty() && !step.starts_with('[')) path_ += '.';
    path_ += step;
    check();
    path_.resize(length);
  }

  template <typename Found>
  void Require(bool holds, std::string_view name, std::string_view expected, const Found& found) {
    if (holds || !status_) return;
    const bool dot = !path_.empty() && !name.empty();
    status_ =
        InputError("{}{}{}: expected {}, found {}", path_, dot ? "." : "", name, expected, found);
  }

  void Size(std::string_view name, int64_t value, int64_t most = kMaxWidth) {
    Require(value >= 1 && value <= most, name, fmt::format("a size from 1 to {}", most), value);
  }
  void Finite(std::string_view name, double value) {
    Require(std::isfinite(value), name, "a finite number", value);
  }
  void Positive(std::string_view name, double value) {
    Require(std::isfinite(value) && value > 0, name, "a finite number above 0", value);
  }
  void Positive(std::string_view name, const std::optional<double>& value) {
    if (value) Positive(name, *value);
  }
  void NotNegative(std::string_view name, double value) {
    Require(std::isfinite(value) && value >= 0, name, "a finite number of at least 0", value);
  }
  void OriginalLength(int64_t value) { Size("original_max_position_embeddings", value, kMaxRows); }
  void Factors(std::string_view name, const std::vector<double>& factors, int64_t rotary_dim) {
    Require(static_cast<int64_t>(factors.size()) == rotary_dim / 2, name,
            fmt::format("{} factors (rotary_dim / 2)", rotary_dim / 2), factors.size());
    for (size_t i = 0; i < factors.size() && status_; ++i)
      Positive(fmt::format("{}[{}]", name, i), factors[i]);
  }

  // A value outside its names can only come from a cast, and would index past every table.
  template <typename E>
  void Named(std::string_view name, E value) {
    Require(static_cast<size_t>(value) < NamesOf<E>().size(), name,
            fmt::format("one of {}", fmt::join(NamesOf<E>(), ", ")), static_cast<int>(value));
  }

  template <typename T>
  void Check(std::string_view name, const std::optional<T>& value) {
    if (value) Check(name, *value);
  }
  void Check(std::string_view name, const Scale& scale);
  void Check(std::string_view name, const NormSpec& norm);
  void Check(std::string_view name, const MlpSpec& mlp) {
    In(name, [&] { Check(mlp); });
  }
  void Rope(const RopeSpec& rope, int64_t head_dim, std::string_view head_dim_name);
  void Scaling(const RopeScaling& scaling, const RopeSpec& rope);
  void Check(const AttentionSpec& a);
  void Check(const MlaSpec& a);
  void Check(const ShortConvSpec& conv) { Size("kernel_size", conv.kernel_size); }
  void Check(const MlpSpec& mlp);
  void Check(const MoeSpec& moe);
  void Router(const RouterSpec& router, const MoeSpec& moe);
  void Check(const LayerSpec& layer);
  void Totals(const ModelSpec& spec);

  Status status_;
  std::string path_;
};

void Checker::Check(std::string_view name, const Scale& scale) {
  In(name, [&] {
    Finite("value", scale.value);
    Named("rounding", scale.rounding);
    if (scale.divide) Require(scale.value != 0, "value", "a divisor other than 0", scale.value);
  });
}

void Checker::Check(std::string_view name, const NormSpec& norm) {
  In(name, [&] {
    Named("kind", norm.kind);
    Named("weight_rounding", norm.weight_rounding);
    NotNegative("eps", norm.eps);
    Finite("weight_offset", norm.weight_offset);
    Require(!norm.bias || norm.kind == NormKind::kLayer, "bias",
            "false (only a layer norm has a bias)", norm.bias);
  });
}

void Checker::Rope(const RopeSpec& rope, int64_t head_dim, std::string_view head_dim_name) {
  In("rope", [&] {
    Named("layout", rope.layout);
    Positive("theta", rope.theta);
    Require(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= head_dim,
            "rotary_dim", fmt::format("an even size from 2 to {} {}", head_dim_name, head_dim),
            rope.rotary_dim);
    if (rope.scaling) In("scaling", [&] { Scaling(*rope.scaling, rope); });
  });
}

void Checker::Scaling(const RopeScaling& scaling, const RopeSpec& rope) {
  if (const auto* linear = std::get_if<LinearScaling>(&scaling)) {
    Positive("factor", linear->factor);
  } else if (const auto* dynamic = std::get_if<DynamicScaling>(&scaling)) {
    Positive("factor", dynamic->factor);
    OriginalLength(dynamic->original_max_position_embeddings);
    Require(rope.rotary_dim > 2, "", "a rotary_dim above 2 (theta's exponent is d / (d - 2))",
            rope.rotary_dim);
  } else if (const auto* llama3 = std::get_if<Llama3Scaling>(&scaling)) {
    Positive("factor", llama3->factor);
    Positive("low_freq_factor", llama3->low_freq_factor);
    Positive("high_freq_factor", llama3->high_freq_factor);
    Require(llama3->high_freq_factor > llama3->low_freq_factor, "high_freq_factor",
            fmt::format("a number above low_freq_factor {}", llama3->low_freq_factor),
            llama3->high_freq_factor);
    OriginalLength(llama3->original_max_position_embeddings);
  } else if (const auto* yarn = std::get_if<YarnScaling>(&scaling)) {
    Positive("factor", yarn->factor);
    Positive("beta_fast", yarn->beta_fast);
    Positive("beta_slow", yarn->beta_slow);
    Positive("attention_factor", yarn->attention_factor);
    OriginalLength(yarn->original_max_position_embeddings);
    Require(rope.theta > 1, "", "a theta above 1 (the ramp's ends divide by its logarithm)",
            rope.theta);
  } else if (const auto* longrope = std::get_if<LongRopeScaling>(&scaling)) {
    Factors("short_factor", longrope->short_factor, rope.rotary_dim);
    Factors("long_factor", longrope->long_factor, rope.rotary_dim);
    Positive("attention_factor", longrope->attention_factor);
    OriginalLength(longrope->original_max_position_embeddings);
  } else if (const auto* factors = std::get_if<FrequencyFactors>(&scaling)) {
    Factors("factors", factors->factors, rope.rotary_dim);
  }
}

void Checker::Check(const AttentionSpec& a) {
  Size("num_attention_heads", a.num_attention_heads);
  Size("head_dim", a.head_dim);
  Size("num_key_value_heads", a.num_key_value_heads);
  if (!status_) return;
  Require(a.num_attention_heads % a.num_key_value_heads == 0, "num_key_value_heads",
          fmt::format("a divisor of num_attention_heads {}", a.num_attention_heads),
          a.num_key_value_heads);
  Require(a.num_attention_heads * a.head_dim <= kMaxWidth, "head_dim",
          fmt::format("num_attention_heads {} times head_dim of at most {}", a.num_attention_heads,
                      kMaxWidth),
          a.head_dim);
  Check("query_scale", a.query_scale);
  if (a.rope) Rope(*a.rope, a.head_dim, "head_dim");
  if (a.sliding_window) Size("sliding_window", *a.sliding_window, INT64_MAX);
  Positive("logit_softcap", a.logit_softcap);
  Check("q_norm", a.q_norm);
  Check("k_norm", a.k_norm);
  Named("qk_norm_scope", a.qk_norm_scope);
  Positive("clip_qkv", a.clip_qkv);
}

void Checker::Check(const MlaSpec& a) {
  Size("num_attention_heads", a.num_attention_heads);
  if (a.q_lora_rank) Size("q_lora_rank", *a.q_lora_rank);
  Size("kv_lora_rank", a.kv_lora_rank);
  Size("qk_nope_head_dim", a.qk_nope_head_dim);
  Size("qk_rope_head_dim", a.qk_rope_head_dim);
  Size("v_head_dim", a.v_head_dim);
  if (!status_) return;
  const int64_t widest = a.qk_nope_head_dim + std::max(a.qk_rope_head_dim, a.v_head_dim);
  Require(
      a.num_attention_heads * widest <= kMaxWidth, "num_attention_heads",
      fmt::format("num_attention_heads times the widest head {} of at most {}", widest, kMaxWidth),
      a.num_attention_heads);
  Check("query_scale", a.query_scale);
  Rope(a.rope, a.qk_rope_head_dim, "qk_rope_head_dim");
  Require(a.q_a_norm.has_value() == a.q_lora_rank.has_value(), "q_a_norm",
          a.q_lora_rank ? "a norm (q_lora_rank is present)" : "none (q_lora_rank is absent)",
          a.q_a_norm ? "a norm" : "none");
  Check("q_a_norm", a.q_a_norm);
  Check("kv_a_norm", a.kv_a_norm);
}

void Checker::Check(const MlpSpec& mlp) {
  Size("intermediate_size", mlp.intermediate_size);
  Named("activation", mlp.activation);
  if (!mlp.clamped_glu) return;
  In("clamped_glu", [&] {
    Require(mlp.gated, "", "none (the MLP is not gated)", "one");
    Finite("alpha", mlp.clamped_glu->alpha);
    Positive("limit", mlp.clamped_glu->limit);
    Finite("up_offset", mlp.clamped_glu->up_offset);
  });
}

void Checker::Check(const MoeSpec& moe) {
  Size("num_experts", moe.num_experts, kMaxExperts);
  Require(moe.num_experts_per_tok >= 1 && moe.num_experts_per_tok <= moe.num_experts,
          "num_experts_per_tok", fmt::format("a number from 1 to num_experts {}", moe.num_experts),
          moe.num_experts_per_tok);
  if (!status_) return;
  In("router", [&] { Router(moe.router, moe); });
  Check("expert", moe.expert);
  if (moe.shared_expert) {
    In("shared_expert", [&] { Check("mlp", moe.shared_expert->mlp); });
  }
}

void Checker::Router(const RouterSpec& router, const MoeSpec& moe) {
  Named("scoring", router.scoring);
  NotNegative("normalize_epsilon", router.normalize_epsilon);
  Check("routed_scaling", router.routed_scaling);
  if (router.groups) {
    In("groups", [&] {
      const auto [n_group, topk_group, best_per_group] = *router.groups;
      Require(n_group >= 1 && moe.num_experts % n_group == 0, "n_group",
              fmt::format("a divisor of num_experts {}", moe.num_experts), n_group);
      if (!status_) return;
      const int64_t group_size = moe.num_experts / n_group;
      Require(best_per_group >= 1 && best_per_group <= group_size, "best_per_group",
              fmt::format("a number from 1 to the {} experts of a group", group_size),
              best_per_group);
      Require(topk_group >= 1 && topk_group <= n_group, "topk_group",
              fmt::format("a number from 1 to n_group {}", n_group), topk_group);
      if (!status_) return;
      Require(topk_group * group_size >= moe.num_experts_per_tok, "topk_group",
              fmt::format("groups that hold num_experts_per_tok {} experts or more",
                          moe.num_experts_per_tok),
              topk_group);
    });
  }
  const bool sparse_mixer = router.scoring == RouterScoring::kSparseMixer;
  Require(
      router.sparse_mixer_jitter.has_value() == sparse_mixer, "sparse_mixer_jitter",
      sparse_mixer ? "a number (scoring is sparse_mixer)" : "none (scoring is not sparse_mixer)",
      router.sparse_mixer_jitter ? "a number" : "none");
  if (router.sparse_mixer_jitter) NotNegative("sparse_mixer_jitter", *router.sparse_mixer_jitter);
  Require(!sparse_mixer || moe.num_experts_per_tok == 2, "scoring",
          "another scoring (sparse_mixer chooses 2 experts per token)",
          fmt::format("sparse_mixer with num_experts_per_tok {}", moe.num_experts_per_tok));
}

void Checker::Check(const LayerSpec& layer) {
  Named("wiring", layer.wiring);
  Check("mixer_pre_norm", layer.mixer_pre_norm);
  Check("mixer_post_norm", layer.mixer_post_norm);
  Check("mlp_pre_norm", layer.mlp_pre_norm);
  Check("mlp_post_norm", layer.mlp_post_norm);
  In("mixer", [&] { std::visit([&](const auto& mixer) { Check(mixer); }, layer.mixer); });
  In("mlp", [&] { std::visit([&](const auto& mlp) { Check(mlp); }, layer.mlp); });
  Check("residual", layer.residual);
}

void Checker::Totals(const ModelSpec& spec) {
  int64_t experts = 0;
  for (const LayerSpec& layer : spec.layers)
    if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) experts += moe->num_experts;
  Require(experts <= kMaxExperts, "layers", fmt::format("at most {} experts together", kMaxExperts),
          experts);
  if (!status_) return;
  int64_t parameters =
      0;  // each weight is below 2^55 and the limit is 2^56: the sum stays below 2^57
  for (const WeightSlot& slot : RequiredWeights(spec)) {
    parameters += slot.rows * slot.cols;
    Require(parameters <= kMaxParameters, "layers",
            fmt::format("at most {} parameters", kMaxParameters), parameters);
    if (!status_) return;
  }
}

void Checker::Check(const ModelSpec& spec) {
  Require(!FindUtf8Fault(spec.architecture), "architecture", "UTF-8", "other bytes");
  Size("max_position_embeddings", spec.max_position_embeddings, kMaxRows);
  In("embedding", [&] {
    Size("vocab_size", spec.embedding.vocab_size, kMaxRows);
    Size("hidden_size", spec.embedding.hidden_size);
    Check("scale", spec.embedding.scale);
    if (spec.embedding.positions)
      Size("positions.num_positions", spec.embedding.positions->num_positions, kMaxRows);
  });
  const auto num_layers = static_cast<int64_t>(spec.layers.size());
  Require(num_layers >= 1 && num_layers <= kMaxLayers, "layers",
          fmt::format("from 1 to {} layers", kMaxLayers), num_layers);
  for (size_t i = 0; i < spec.layers.size() && status_; ++i)
    In(fmt::format("layers[{}]", i), [&] { Check(spec.layers[i]); });
  Check("final_norm", spec.final_norm);
  In("lm_head", [&] {
    Check("logit_scale", spec.lm_head.logit_scale);
    Positive("logit_softcap", spec.lm_head.logit_softcap);
  });
  if (status_) Totals(spec);
}

}  // namespace

Status Validate(const ModelSpec& spec) {
  Checker checker;
  checker.Check(spec);
  return std::move(checker).Finish();
}

Status Validate(const RunSpec& run) {
  if (run.chunk_size && (*run.chunk_size < 1 || *run.chunk_size > kMaxRows))
    return InputError("run.chunk_size: expected a size from 1 to {}, found {}", kMaxRows,
                      *run.chunk_size);
  if (run.padding && (run.padding->length < 0 || run.padding->length > kMaxRows))
    return InputError("run.padding.length: expected a length from 0 to {}, found {}", kMaxRows,
                      run.padding->length);
  if (run.first_position < 0 || run.first_position > kMaxRows)
    return InputError("run.first_position: expected a position from 0 to {}, found {}", kMaxRows,
                      run.first_position);
  if (run.mask_fill && !std::isfinite(*run.mask_fill))
    return InputError("run.mask_fill: expected a finite number, found {}", *run.mask_fill);
  return {};
}

std::vector<std::string> Remarks(const ModelSpec& spec) {
  std::vector<std::string> remarks;
  const auto id = [&](const std::string& name, int64_t value) {
    if (value >= 0 && value < spec.embedding.vocab_size) return;
    remarks.push_back(fmt::format("tokens.{}: the id {} is outside the vocabulary of {}", name,
                                  value, spec.embedding.vocab_size));
  };
  if (spec.tokens.bos) id("bos", *spec.tokens.bos);
  for (size_t i = 0; i < spec.tokens.eos.size(); ++i)
    id(fmt::format("eos[{}]", i), spec.tokens.eos[i]);
  if (spec.tokens.pad) id("pad", *spec.tokens.pad);
  const auto& positions = spec.embedding.positions;
  if (positions && positions->num_positions < spec.max_position_embeddings) {
    remarks.push_back(
        fmt::format("embedding.positions.num_positions: {} learned positions are fewer than "
                    "max_position_embeddings {}; no run can be longer",
                    positions->num_positions, spec.max_position_embeddings));
  }
  return remarks;
}

}  // namespace lockstep

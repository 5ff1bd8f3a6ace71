// The field lists: for every struct of model_spec.h and run_spec.h its fields, for every enum its
// names, for every variant the names of its alternatives. JSON, diff, edit by path and printing
// (fields.h) are written once, over these lists.
//
// A list that does not match its struct (a field forgotten, doubled or out of order) and an enum
// with an unnamed enumerator do not compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "spec/model_spec.h"
#include "spec/run_spec.h"

namespace lockstep {

template <typename Struct, typename Member>
struct Field {
  std::string_view name;
  Member Struct::*member;
};

struct NotListed {};
template <typename T>
inline constexpr NotListed kFieldsOf{};  // of a struct: a tuple of Field, in the struct's order
template <typename T>
inline constexpr NotListed kNamesOf{};  // of an enum: names by value; of a variant: by index

// The field's name is written once, so that name and member cannot differ.
#define LS_FIELD(Struct, name) \
  Field<Struct, decltype(Struct::name)> { #name, &Struct::name }

template <>
inline constexpr auto kFieldsOf<Scale> =
    std::tuple{LS_FIELD(Scale, value), LS_FIELD(Scale, divide), LS_FIELD(Scale, rounding)};
template <>
inline constexpr auto kFieldsOf<NormSpec> =
    std::tuple{LS_FIELD(NormSpec, kind),          LS_FIELD(NormSpec, eps),
               LS_FIELD(NormSpec, weight_offset), LS_FIELD(NormSpec, weight_rounding),
               LS_FIELD(NormSpec, weight),        LS_FIELD(NormSpec, bias)};
template <>
inline constexpr auto kFieldsOf<LinearScaling> = std::tuple{LS_FIELD(LinearScaling, factor)};
template <>
inline constexpr auto kFieldsOf<DynamicScaling> = std::tuple{
    LS_FIELD(DynamicScaling, factor), LS_FIELD(DynamicScaling, original_max_position_embeddings)};
template <>
inline constexpr auto kFieldsOf<Llama3Scaling> =
    std::tuple{LS_FIELD(Llama3Scaling, factor), LS_FIELD(Llama3Scaling, low_freq_factor),
               LS_FIELD(Llama3Scaling, high_freq_factor),
               LS_FIELD(Llama3Scaling, original_max_position_embeddings)};
template <>
inline constexpr auto kFieldsOf<YarnScaling> =
    std::tuple{LS_FIELD(YarnScaling, factor),
               LS_FIELD(YarnScaling, beta_fast),
               LS_FIELD(YarnScaling, beta_slow),
               LS_FIELD(YarnScaling, truncate),
               LS_FIELD(YarnScaling, attention_factor),
               LS_FIELD(YarnScaling, original_max_position_embeddings)};
template <>
inline constexpr auto kFieldsOf<LongRopeScaling> =
    std::tuple{LS_FIELD(LongRopeScaling, short_factor), LS_FIELD(LongRopeScaling, long_factor),
               LS_FIELD(LongRopeScaling, attention_factor),
               LS_FIELD(LongRopeScaling, original_max_position_embeddings)};
template <>
inline constexpr auto kFieldsOf<FrequencyFactors> = std::tuple{LS_FIELD(FrequencyFactors, factors)};
template <>
inline constexpr auto kFieldsOf<RopeSpec> =
    std::tuple{LS_FIELD(RopeSpec, theta), LS_FIELD(RopeSpec, rotary_dim),
               LS_FIELD(RopeSpec, layout), LS_FIELD(RopeSpec, scaling)};
template <>
inline constexpr auto kFieldsOf<AttentionSpec> =
    std::tuple{LS_FIELD(AttentionSpec, num_attention_heads),
               LS_FIELD(AttentionSpec, num_key_value_heads),
               LS_FIELD(AttentionSpec, head_dim),
               LS_FIELD(AttentionSpec, query_scale),
               LS_FIELD(AttentionSpec, q_bias),
               LS_FIELD(AttentionSpec, k_bias),
               LS_FIELD(AttentionSpec, v_bias),
               LS_FIELD(AttentionSpec, o_bias),
               LS_FIELD(AttentionSpec, rope),
               LS_FIELD(AttentionSpec, sliding_window),
               LS_FIELD(AttentionSpec, logit_softcap),
               LS_FIELD(AttentionSpec, q_norm),
               LS_FIELD(AttentionSpec, k_norm),
               LS_FIELD(AttentionSpec, qk_norm_scope),
               LS_FIELD(AttentionSpec, clip_qkv),
               LS_FIELD(AttentionSpec, sinks)};
template <>
inline constexpr auto kFieldsOf<MlaSpec> = std::tuple{LS_FIELD(MlaSpec, num_attention_heads),
                                                      LS_FIELD(MlaSpec, q_lora_rank),
                                                      LS_FIELD(MlaSpec, kv_lora_rank),
                                                      LS_FIELD(MlaSpec, qk_nope_head_dim),
                                                      LS_FIELD(MlaSpec, qk_rope_head_dim),
                                                      LS_FIELD(MlaSpec, v_head_dim),
                                                      LS_FIELD(MlaSpec, query_scale),
                                                      LS_FIELD(MlaSpec, bias),
                                                      LS_FIELD(MlaSpec, rope),
                                                      LS_FIELD(MlaSpec, q_a_norm),
                                                      LS_FIELD(MlaSpec, kv_a_norm)};
template <>
inline constexpr auto kFieldsOf<ShortConvSpec> =
    std::tuple{LS_FIELD(ShortConvSpec, kernel_size), LS_FIELD(ShortConvSpec, bias)};
template <>
inline constexpr auto kFieldsOf<ClampedGlu> = std::tuple{
    LS_FIELD(ClampedGlu, alpha), LS_FIELD(ClampedGlu, limit), LS_FIELD(ClampedGlu, up_offset)};
template <>
inline constexpr auto kFieldsOf<MlpSpec> =
    std::tuple{LS_FIELD(MlpSpec, intermediate_size), LS_FIELD(MlpSpec, gated),
               LS_FIELD(MlpSpec, activation),        LS_FIELD(MlpSpec, up_bias),
               LS_FIELD(MlpSpec, down_bias),         LS_FIELD(MlpSpec, clamped_glu)};
template <>
inline constexpr auto kFieldsOf<RouterGroups> =
    std::tuple{LS_FIELD(RouterGroups, n_group), LS_FIELD(RouterGroups, topk_group),
               LS_FIELD(RouterGroups, best_per_group)};
template <>
inline constexpr auto kFieldsOf<RouterSpec> = std::tuple{LS_FIELD(RouterSpec, scoring),
                                                         LS_FIELD(RouterSpec, normalize_top_k),
                                                         LS_FIELD(RouterSpec, normalize_epsilon),
                                                         LS_FIELD(RouterSpec, routed_scaling),
                                                         LS_FIELD(RouterSpec, bias),
                                                         LS_FIELD(RouterSpec, selection_bias),
                                                         LS_FIELD(RouterSpec, groups),
                                                         LS_FIELD(RouterSpec, sparse_mixer_jitter)};
template <>
inline constexpr auto kFieldsOf<SharedExpertSpec> =
    std::tuple{LS_FIELD(SharedExpertSpec, mlp), LS_FIELD(SharedExpertSpec, sigmoid_gate)};
template <>
inline constexpr auto kFieldsOf<MoeSpec> = std::tuple{
    LS_FIELD(MoeSpec, num_experts), LS_FIELD(MoeSpec, num_experts_per_tok),
    LS_FIELD(MoeSpec, router), LS_FIELD(MoeSpec, expert), LS_FIELD(MoeSpec, shared_expert)};
template <>
inline constexpr auto kFieldsOf<LayerSpec> = std::tuple{LS_FIELD(LayerSpec, wiring),
                                                        LS_FIELD(LayerSpec, mixer_pre_norm),
                                                        LS_FIELD(LayerSpec, mixer_post_norm),
                                                        LS_FIELD(LayerSpec, mlp_pre_norm),
                                                        LS_FIELD(LayerSpec, mlp_post_norm),
                                                        LS_FIELD(LayerSpec, mixer),
                                                        LS_FIELD(LayerSpec, mlp),
                                                        LS_FIELD(LayerSpec, residual)};
template <>
inline constexpr auto kFieldsOf<LearnedPositions> =
    std::tuple{LS_FIELD(LearnedPositions, num_positions)};
template <>
inline constexpr auto kFieldsOf<EmbeddingSpec> =
    std::tuple{LS_FIELD(EmbeddingSpec, vocab_size), LS_FIELD(EmbeddingSpec, hidden_size),
               LS_FIELD(EmbeddingSpec, scale), LS_FIELD(EmbeddingSpec, positions)};
template <>
inline constexpr auto kFieldsOf<LmHeadSpec> =
    std::tuple{LS_FIELD(LmHeadSpec, tied), LS_FIELD(LmHeadSpec, bias),
               LS_FIELD(LmHeadSpec, logit_scale), LS_FIELD(LmHeadSpec, logit_softcap)};
template <>
inline constexpr auto kFieldsOf<TokenIds> =
    std::tuple{LS_FIELD(TokenIds, bos), LS_FIELD(TokenIds, eos), LS_FIELD(TokenIds, pad)};
template <>
inline constexpr auto kFieldsOf<ModelSpec> =
    std::tuple{LS_FIELD(ModelSpec, architecture), LS_FIELD(ModelSpec, max_position_embeddings),
               LS_FIELD(ModelSpec, embedding),    LS_FIELD(ModelSpec, layers),
               LS_FIELD(ModelSpec, final_norm),   LS_FIELD(ModelSpec, lm_head),
               LS_FIELD(ModelSpec, tokens)};
template <>
inline constexpr auto kFieldsOf<Padding> =
    std::tuple{LS_FIELD(Padding, side), LS_FIELD(Padding, length)};
template <>
inline constexpr auto kFieldsOf<RunSpec> = std::tuple{LS_FIELD(RunSpec, chunk_size),
                                                      LS_FIELD(RunSpec, padding),
                                                      LS_FIELD(RunSpec, first_position),
                                                      LS_FIELD(RunSpec, cache),
                                                      LS_FIELD(RunSpec, kv_dtype),
                                                      LS_FIELD(RunSpec, kv_rounded_after_call),
                                                      LS_FIELD(RunSpec, residual_rounding),
                                                      LS_FIELD(RunSpec, norm_cast),
                                                      LS_FIELD(RunSpec, inverse_rms_rounding),
                                                      LS_FIELD(RunSpec, qk_norm_after_rope),
                                                      LS_FIELD(RunSpec, softcap_after_mask),
                                                      LS_FIELD(RunSpec, mask_fill),
                                                      LS_FIELD(RunSpec, causal_alignment),
                                                      LS_FIELD(RunSpec, padding_takes_positions),
                                                      LS_FIELD(RunSpec, ring_cache),
                                                      LS_FIELD(RunSpec, cache_state)};
#undef LS_FIELD

template <size_t n>
using Names = std::array<std::string_view, n>;

// The words are Hugging Face's where it has one.
template <>
inline constexpr Names<4> kNamesOf<Rounding>{"none", "bf16", "fp16", "two_decimals"};
template <>
inline constexpr Names<2> kNamesOf<NormKind>{"rms", "layer"};
template <>
inline constexpr Names<2> kNamesOf<RopeLayout>{"half", "interleaved"};
template <>
inline constexpr Names<2> kNamesOf<QkNormScope>{"head", "projection"};
template <>
inline constexpr Names<6> kNamesOf<Activation>{"silu",       "gelu", "gelu_tanh",
                                               "quick_gelu", "relu", "relu2"};
template <>
inline constexpr Names<4> kNamesOf<RouterScoring>{"softmax_then_top_k", "top_k_then_softmax",
                                                  "sigmoid_then_top_k", "sparse_mixer"};
template <>
inline constexpr Names<2> kNamesOf<Wiring>{"sequential", "parallel"};
template <>
inline constexpr Names<2> kNamesOf<PaddingSide>{"left", "right"};
template <>
inline constexpr Names<4> kNamesOf<KvDType>{"f64", "f32", "f16", "bf16"};
template <>
inline constexpr Names<2> kNamesOf<CausalAlignment>{"end", "start"};
template <>
inline constexpr Names<3> kNamesOf<RingCache>{"exact", "one_short", "stuck"};
template <>
inline constexpr Names<4> kNamesOf<CacheState>{"kept", "conv_lost", "kv_lost", "row_stale"};

template <>
inline constexpr Names<6> kNamesOf<RopeScaling>{"linear", "dynamic",  "llama3",
                                                "yarn",   "longrope", "frequency_factors"};
template <>
inline constexpr Names<3> kNamesOf<MixerSpec>{"attention", "mla", "short_conv"};
template <>
inline constexpr Names<2> kNamesOf<FeedForwardSpec>{"dense", "moe"};

// What a type is to the field lists.
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <typename T>
inline constexpr bool kIsStruct = !std::is_same_v<decltype(kFieldsOf<T>), const NotListed>;

namespace field_list_check {

// The struct takes exactly these members in this order, and not one more ({} starts any field).
template <typename T, typename... Member>
constexpr bool TakesExactly(const std::tuple<Field<T, Member>...>&) {
  constexpr bool takes_all = requires(Member... member) { T{member...}; };
  constexpr bool takes_more = requires(Member... member) { T{member..., {}}; };
  return takes_all && !takes_more;
}

template <typename... Field>
constexpr bool NamesDiffer(const std::tuple<Field...>& fields) {
  const auto names = std::apply(
      [](const auto&... field) {
        return std::array<std::string_view, sizeof...(Field)>{field.name...};
      },
      fields);
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (names[i] == names[j]) return false;
  return true;
}

// Compilers print a value without an enumerator as a cast: "= (lockstep::Wiring)2".
template <auto value>
constexpr bool IsEnumerator() {
  return std::string_view(__PRETTY_FUNCTION__).find("= (") == std::string_view::npos;
}

template <typename T>
constexpr bool NamesAll() {
  constexpr size_t n = kNamesOf<T>.size();
  if constexpr (kIsVariant<T>) {
    return n == std::variant_size_v<T>;
  } else {
    return IsEnumerator<static_cast<T>(n - 1)>() && !IsEnumerator<static_cast<T>(n)>();
  }
}

}  // namespace field_list_check

template <typename Struct>
constexpr const auto& FieldsOf() {
  using T = std::remove_const_t<Struct>;
  static_assert(field_list_check::TakesExactly(kFieldsOf<T>), "a struct and its fields differ");
  static_assert(field_list_check::NamesDiffer(kFieldsOf<T>), "a field is listed twice");
  return kFieldsOf<T>;
}

template <typename T>
constexpr const auto& NamesOf() {
  static_assert(field_list_check::NamesAll<T>(), "an enum or a variant and its names differ");
  return kNamesOf<T>;
}

template <typename T>
constexpr std::string_view NameOf(const T& value) {
  if constexpr (kIsVariant<T>) {
    return NamesOf<T>()[value.index()];
  } else {
    return NamesOf<T>()[static_cast<size_t>(value)];
  }
}

// Calls visit(name, field) for every field, in order.
template <typename T, typename Visit>
constexpr void VisitFields(T& object, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field.name, object.*(field.member)), ...); },
             FieldsOf<T>());
}

}  // namespace lockstep

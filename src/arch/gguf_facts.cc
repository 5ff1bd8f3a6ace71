#include "arch/gguf_facts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "arch/spec_facts.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

// What a key would hold; monostate: the spec has nothing to say there.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                           std::vector<bool>>;

template <typename T>
Value Maybe(const std::optional<T>& value) {
  return value ? Value(*value) : Value();
}

// One number for all layers, or a list.
Value PerLayer(const std::vector<int64_t>& values) {
  if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end())
    return values.front();
  return values;
}

Value HeadCount(const SpecFacts& facts) {
  if (facts.mla != nullptr) return facts.mla->num_attention_heads;
  if (facts.attention == nullptr) return {};
  std::vector<int64_t> heads;
  for (const LayerSpec& layer : facts.spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    heads.push_back((attention != nullptr ? attention : facts.attention)->num_attention_heads);
  }
  return PerLayer(heads);
}

// 0 marks a layer without attention.
Value KeyValueHeadCount(const SpecFacts& facts) {
  if (facts.mla != nullptr) return facts.mla->num_attention_heads;
  std::vector<int64_t> heads;
  for (const LayerSpec& layer : facts.spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    heads.push_back(attention != nullptr ? attention->num_key_value_heads : 0);
  }
  return PerLayer(heads);
}

// Of the layers without experts; of a model that has none of them, the experts'.
Value FeedForwardLength(const SpecFacts& facts) {
  if (facts.mlp == nullptr) return facts.moe->expert.intermediate_size;
  std::vector<int64_t> sizes;
  for (const LayerSpec& layer : facts.spec.layers) {
    const auto* mlp = std::get_if<MlpSpec>(&layer.mlp);
    sizes.push_back((mlp != nullptr ? mlp : facts.mlp)->intermediate_size);
  }
  return PerLayer(sizes);
}

Value SlidingPattern(const SpecFacts& facts) {
  if (facts.windowed == nullptr) return {};
  std::vector<bool> sliding;
  for (const LayerSpec& layer : facts.spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    sliding.push_back(attention != nullptr && attention->sliding_window);
  }
  return sliding;
}

// llama.cpp's llama_expert_gating_func_type. SparseMixer has no number: its family knows it.
Value GatingFunction(const SpecFacts& facts) {
  if (facts.moe == nullptr) return {};
  switch (facts.moe->router.scoring) {
    case RouterScoring::kSoftmaxThenTopK:
      return int64_t{1};
    case RouterScoring::kSigmoidThenTopK:
      return int64_t{2};
    case RouterScoring::kTopKThenSoftmax:
      return int64_t{3};
    case RouterScoring::kSparseMixer:
      break;
  }
  return {};
}

template <typename Scaling>
const Scaling* ScalingOf(const SpecFacts& facts) {
  if (facts.rope == nullptr || !facts.rope->scaling) return nullptr;
  return std::get_if<Scaling>(&*facts.rope->scaling);
}

Value ScalingType(const SpecFacts& facts) {
  if (ScalingOf<LinearScaling>(facts)) return "linear";
  if (ScalingOf<YarnScaling>(facts)) return "yarn";
  if (ScalingOf<LongRopeScaling>(facts)) return "longrope";
  return {};
}

Value ScalingFactor(const SpecFacts& facts) {
  if (const auto* linear = ScalingOf<LinearScaling>(facts)) return linear->factor;
  if (const auto* yarn = ScalingOf<YarnScaling>(facts)) return yarn->factor;
  return {};
}

// Of llama3 it changes nothing (the factors are a tensor), but says where they came from.
Value OriginalContext(const SpecFacts& facts) {
  if (const auto* yarn = ScalingOf<YarnScaling>(facts))
    return yarn->original_max_position_embeddings;
  if (const auto* longrope = ScalingOf<LongRopeScaling>(facts))
    return longrope->original_max_position_embeddings;
  if (const auto* llama3 = ScalingOf<Llama3Scaling>(facts))
    return llama3->original_max_position_embeddings;
  return {};
}

Value AttentionFactor(const SpecFacts& facts) {
  if (const auto* longrope = ScalingOf<LongRopeScaling>(facts)) return longrope->attention_factor;
  return {};
}

// Only where it is not the one that readers compute.
Value YarnStatedFactor(const SpecFacts& facts) {
  const auto* yarn = ScalingOf<YarnScaling>(facts);
  if (yarn == nullptr) return {};
  const bool latent = facts.mla != nullptr && MscaleAllDim(*facts.mla) != 0;
  const double computed = latent ? 1 : YarnAttentionFactor(yarn->factor);
  if (static_cast<float>(computed) == static_cast<float>(yarn->attention_factor)) return {};
  return yarn->attention_factor;
}

Value YarnLogMultiplier(const SpecFacts& facts) {
  if (facts.mla == nullptr) return {};
  const double all_dim = MscaleAllDim(*facts.mla);
  return all_dim != 0 ? Value(0.1 * all_dim) : Value();
}

struct Row {
  std::string_view key;
  Value (*state)(const SpecFacts& facts);
};

#define LS_OF(pointer, expression) \
  [](const SpecFacts& f) -> Value { return f.pointer == nullptr ? Value() : Value(expression); }
#define LS_IN(expression) [](const SpecFacts& f) -> Value { return Value(expression); }

// clang-format off
// GGUF's specification and gguf-py's constants.py have the words.
constexpr Row kRows[] = {
    {"vocab_size", LS_IN(f.spec.embedding.vocab_size)},
    {"context_length", LS_IN(f.spec.max_position_embeddings)},
    {"embedding_length", LS_IN(f.spec.embedding.hidden_size)},
    {"block_count", LS_IN(f.num_layers())},
    {"feed_forward_length", FeedForwardLength},
    {"leading_dense_block_count", LS_OF(moe, f.LeadingDenseLayers())},
    {"expert_count", LS_OF(moe, f.moe->num_experts)},
    {"expert_used_count", LS_OF(moe, f.moe->num_experts_per_tok)},
    {"expert_feed_forward_length", LS_OF(moe, f.moe->expert.intermediate_size)},
    {"expert_shared_feed_forward_length", [](const SpecFacts& f) -> Value {
       if (f.moe == nullptr || !f.moe->shared_expert) return {};
       return f.moe->shared_expert->mlp.intermediate_size;
     }},
    {"expert_shared_count", [](const SpecFacts& f) -> Value {
       if (f.moe == nullptr || !f.moe->shared_expert) return {};
       return f.moe->shared_expert->mlp.intermediate_size / f.moe->expert.intermediate_size;
     }},
    {"expert_gating_func", GatingFunction},
    {"expert_weights_norm", LS_OF(moe, f.moe->router.normalize_top_k)},
    {"expert_weights_scale", LS_OF(moe, f.moe->router.routed_scaling.value)},
    {"expert_group_count", [](const SpecFacts& f) -> Value {
       if (f.moe == nullptr || !f.moe->router.groups) return {};
       return f.moe->router.groups->n_group;
     }},
    {"expert_group_used_count", [](const SpecFacts& f) -> Value {
       if (f.moe == nullptr || !f.moe->router.groups) return {};
       return f.moe->router.groups->topk_group;
     }},
    {"attention.head_count", HeadCount},
    {"attention.head_count_kv", KeyValueHeadCount},
    {"attention.key_length", [](const SpecFacts& f) -> Value {
       if (f.mla != nullptr) return f.mla->qk_nope_head_dim + f.mla->qk_rope_head_dim;
       return f.attention != nullptr ? Value(f.attention->head_dim) : Value();
     }},
    {"attention.value_length", [](const SpecFacts& f) -> Value {
       if (f.mla != nullptr) return f.mla->v_head_dim;
       return f.attention != nullptr ? Value(f.attention->head_dim) : Value();
     }},
    {"attention.q_lora_rank", [](const SpecFacts& f) -> Value {
       return f.mla != nullptr ? Maybe(f.mla->q_lora_rank) : Value();
     }},
    {"attention.kv_lora_rank", LS_OF(mla, f.mla->kv_lora_rank)},
    {"attention.layer_norm_rms_epsilon", LS_IN(f.spec.final_norm.eps)},
    {"attention.layer_norm_epsilon", LS_IN(f.spec.final_norm.eps)},
    {"attention.sliding_window", LS_OF(windowed, *f.windowed->sliding_window)},
    {"attention.sliding_window_pattern", SlidingPattern},
    {"attention.clamp_kqv", [](const SpecFacts& f) -> Value {
       return f.attention != nullptr ? Maybe(f.attention->clip_qkv) : Value();
     }},
    {"attention.scale", LS_OF(attention, f.attention->query_scale.value)},
    {"attn_logit_softcapping", [](const SpecFacts& f) -> Value {
       return f.attention != nullptr ? Maybe(f.attention->logit_softcap) : Value();
     }},
    {"final_logit_softcapping", LS_IN(Maybe(f.spec.lm_head.logit_softcap))},
    {"embedding_scale", LS_IN(f.spec.embedding.scale.value)},
    {"residual_scale", LS_IN(f.spec.layers.front().residual.value)},
    {"logit_scale", LS_IN(f.spec.lm_head.logit_scale.value)},
    {"shortconv.l_cache", LS_OF(conv, f.conv->kernel_size)},
    {"rope.dimension_count", LS_OF(rope, f.rope->rotary_dim)},
    {"rope.freq_base", LS_OF(rope, f.rope->theta)},
    {"rope.freq_base_swa", LS_OF(windowed_rope, f.windowed_rope->theta)},
    {"rope.scaling.type", ScalingType},
    {"rope.scaling.factor", ScalingFactor},
    {"rope.scaling.original_context_length", OriginalContext},
    {"rope.scaling.attn_factor", AttentionFactor},
    {"rope.scaling.yarn_attn_factor", YarnStatedFactor},
    {"rope.scaling.yarn_log_multiplier", YarnLogMultiplier},
    {"rope.scaling.yarn_beta_fast", [](const SpecFacts& f) -> Value {
       const auto* yarn = ScalingOf<YarnScaling>(f);
       return yarn != nullptr ? Value(yarn->beta_fast) : Value();
     }},
    {"rope.scaling.yarn_beta_slow", [](const SpecFacts& f) -> Value {
       const auto* yarn = ScalingOf<YarnScaling>(f);
       return yarn != nullptr ? Value(yarn->beta_slow) : Value();
     }},
    // Granite-MoE's switch for a model without RoPE.
    {"rope.scaling.finetuned", [](const SpecFacts& f) -> Value {
       return f.rope == nullptr ? Value(false) : Value();
     }},
};
// clang-format on
#undef LS_OF
#undef LS_IN

// The length of a context may be larger than what a u32 holds; read-back then says so.
uint32_t Narrow(int64_t value) {
  return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
}

void Set(GgufValues& values, const std::string& key, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) values.SetBool(key, *flag);
  if (const auto* number = std::get_if<int64_t>(&value)) values.SetInteger(key, Narrow(*number));
  if (const auto* number = std::get_if<double>(&value)) values.SetNumber(key, *number);
  if (const auto* text = std::get_if<std::string>(&value)) values.SetString(key, *text);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    values.SetIntegers(key, std::vector<int32_t>(list->begin(), list->end()));
  if (const auto* list = std::get_if<std::vector<bool>>(&value)) values.SetBools(key, *list);
}

void SetTokenIds(const TokenIds& tokens, GgufValues& values) {
  const auto set = [&](std::string_view key, const std::optional<int64_t>& id) {
    if (id) values.SetInteger(fmt::format("tokenizer.ggml.{}", key), Narrow(*id));
  };
  set("bos_token_id", tokens.bos);
  set("padding_token_id", tokens.pad);
  // llama.cpp ends a text at any of the three.
  constexpr std::string_view kEnds[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
  for (size_t i = 0; i < std::min(std::size(kEnds), tokens.eos.size()); ++i)
    set(kEnds[i], tokens.eos[i]);
}

std::vector<FactTensor> ProposeTensors(const SpecFacts& facts) {
  const auto floats = [](const std::vector<double>& x) {
    return std::vector<float>(x.begin(), x.end());
  };
  if (const auto* bands = ScalingOf<Llama3Scaling>(facts))
    return {
        {"rope_freqs.weight", Llama3Factors(*bands, facts.rope->theta, facts.rope->rotary_dim)}};
  if (const auto* factors = ScalingOf<FrequencyFactors>(facts))
    return {{"rope_freqs.weight", floats(factors->factors)}};
  if (const auto* longrope = ScalingOf<LongRopeScaling>(facts))
    return {{"rope_factors_long.weight", floats(longrope->long_factor)},
            {"rope_factors_short.weight", floats(longrope->short_factor)}};
  return {};
}

GgufFacts Propose(const ModelSpec& spec, std::string_view architecture) {
  const SpecFacts facts(spec);
  GgufFacts out;
  out.values.SetString("general.architecture", architecture);
  for (const Row& row : kRows)
    Set(out.values, fmt::format("{}.{}", architecture, row.key), row.state(facts));
  SetTokenIds(spec.tokens, out.values);
  out.tensors = ProposeTensors(facts);
  return out;
}

}  // namespace

Result<GgufFacts> StateInGguf(const ModelSpec& spec, const GgufArchitecture& architecture,
                              std::span<const TensorInfo> weights, std::string_view place) {
  GgufFacts facts = Propose(spec, architecture.architecture);

  // The file as its reader will see it.
  Checkpoint file;
  file.kind = Checkpoint::Kind::kGguf;
  file.path = "this model";
  file.gguf = facts.values.View();
  file.tensors.assign(weights.begin(), weights.end());
  for (const FactTensor& tensor : facts.tensors)
    file.tensors.push_back({.name = tensor.name,
                            .shape = {static_cast<int64_t>(tensor.values.size())},
                            .type = FindTensorType("F32"),
                            .data = std::as_bytes(std::span(tensor.values))});
  LS_RETURN_IF_ERROR(SortByName(file.tensors, place));
  GgufConfig config(file, std::string(architecture.architecture));
  auto read = architecture.build(config);
  if (!read)
    return UnsupportedError("{}: GGUF's architecture \"{}\" cannot state this model: {}", place,
                            architecture.architecture, read.error().message);
  if (const auto differences = FactsThatDiffer(spec, *read); !differences.empty())
    return UnsupportedError(
        "{}: GGUF's architecture \"{}\" cannot state this model; there it would have {}", place,
        architecture.architecture, fmt::join(differences, "; "));
  for (const Row& row : kRows)
    if (!config.WasRead(row.key))
      facts.values.Erase(fmt::format("{}.{}", architecture.architecture, row.key));
  std::erase_if(facts.tensors, [&](const FactTensor& tensor) {
    return !config.tensors_read().contains(tensor.name);
  });
  return facts;
}

}  // namespace lockstep

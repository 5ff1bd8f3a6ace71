#include "arch/hf_facts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "arch/spec_facts.h"

namespace lockstep {
namespace {

// "Not stated", which is another thing than null ("none").
const Json kUnstated(Json::value_t::discarded);

// A float that GGUF stored comes back as the shortest decimal (GgufConfig); what was computed from
// one may be a few bits beside a short number: 1 / (1 / sqrt(256))^2 is 256.
Json Tidy(double x) {
  const double whole = std::round(x);
  if (std::abs(x - whole) < 1e-6 * std::abs(x)) return static_cast<int64_t>(whole);
  return x;
}

std::string_view ActivationWord(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_pytorch_tanh";
    case Activation::kQuickGelu:
      return "quick_gelu";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu2:
      return "relu2";
  }
  return "silu";
}

const MlpSpec& AnyMlp(const SpecFacts& facts) {
  return facts.mlp != nullptr ? *facts.mlp : facts.moe->expert;
}

Json LayerTypes(const SpecFacts& facts) {
  Json types = Json::array();
  for (const LayerSpec& layer : facts.spec.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (std::holds_alternative<ShortConvSpec>(layer.mixer)) {
      types.push_back("conv");
    } else {
      types.push_back(attention != nullptr && attention->sliding_window ? "sliding_attention"
                                                                        : "full_attention");
    }
  }
  return types;
}

// In spite of the key's name, 1 means that the layer turns.
Json NoRopeLayers(const SpecFacts& facts) {
  Json layers = Json::array();
  for (const LayerSpec& layer : facts.spec.layers) layers.push_back(FindRope(layer) ? 1 : 0);
  return layers;
}

Json DenseLayers(const SpecFacts& facts) {
  Json layers = Json::array();
  for (size_t i = 0; i < facts.spec.layers.size(); ++i)
    if (std::holds_alternative<MlpSpec>(facts.spec.layers[i].mlp)) layers.push_back(i);
  return layers;
}

Json ScoringWord(const SpecFacts& facts) {
  if (facts.moe == nullptr) return kUnstated;
  return facts.moe->router.scoring == RouterScoring::kSigmoidThenTopK ? "sigmoid" : "softmax";
}

// DeepSeek's word for how groups are ranked.
Json TopKMethod(const SpecFacts& facts) {
  if (facts.moe == nullptr) return kUnstated;
  if (facts.moe->router.selection_bias) return "noaux_tc";
  return facts.moe->router.groups ? "group_limited_greedy" : "greedy";
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json InverseLayerScale(const SpecFacts& facts) {
  if (facts.attention == nullptr || facts.spec.layers.size() < 2) return false;
  const auto* second = std::get_if<AttentionSpec>(&facts.spec.layers[1].mixer);
  return second != nullptr && second->query_scale.value < facts.attention->query_scale.value * 0.75;
}

struct Row {
  std::string_view key;
  Json (*state)(const SpecFacts& facts);
};

#define LS_OF(pointer, expression) \
  [](const SpecFacts& f) -> Json { return f.pointer == nullptr ? kUnstated : Json(expression); }
#define LS_IN(expression) [](const SpecFacts& f) -> Json { return Json(expression); }

// clang-format off
// Several keys for one fact: families call it differently, and read one of them.
constexpr Row kRows[] = {
    {"vocab_size", LS_IN(f.spec.embedding.vocab_size)},
    {"hidden_size", LS_IN(f.spec.embedding.hidden_size)},
    {"n_embd", LS_IN(f.spec.embedding.hidden_size)},
    {"num_hidden_layers", LS_IN(f.num_layers())},
    {"n_layer", LS_IN(f.num_layers())},
    {"max_position_embeddings", LS_IN(f.spec.max_position_embeddings)},
    {"n_positions", LS_IN(f.spec.max_position_embeddings)},
    {"intermediate_size", LS_IN(AnyMlp(f).intermediate_size)},
    {"n_inner", LS_IN(AnyMlp(f).intermediate_size)},
    {"block_auto_adjust_ff_dim", [](const SpecFacts&) -> Json { return false; }},
    {"hidden_act", LS_IN(ActivationWord(AnyMlp(f).activation))},
    {"hidden_activation", LS_IN(ActivationWord(AnyMlp(f).activation))},
    {"activation_function", LS_IN(ActivationWord(AnyMlp(f).activation))},
    {"mlp_bias", LS_IN(AnyMlp(f).up_bias)},
    {"num_attention_heads", [](const SpecFacts& f) -> Json {
       if (f.mla != nullptr) return f.mla->num_attention_heads;
       return f.attention != nullptr ? Json(f.attention->num_attention_heads) : kUnstated;
     }},
    {"n_head", LS_OF(attention, f.attention->num_attention_heads)},
    {"num_key_value_heads", [](const SpecFacts& f) -> Json {
       if (f.mla != nullptr) return f.mla->num_attention_heads;
       return f.attention != nullptr ? Json(f.attention->num_key_value_heads) : kUnstated;
     }},
    {"head_dim", [](const SpecFacts& f) -> Json {
       if (f.mla != nullptr) return f.mla->qk_rope_head_dim;
       return f.attention != nullptr ? Json(f.attention->head_dim) : kUnstated;
     }},
    {"attention_bias", [](const SpecFacts& f) -> Json {
       if (f.mla != nullptr) return f.mla->bias;
       return f.attention != nullptr ? Json(f.attention->q_bias) : kUnstated;
     }},
    {"qkv_bias", LS_OF(attention, f.attention->q_bias)},
    {"use_bias", LS_OF(attention, f.attention->o_bias)},
    {"qk_layernorm", LS_OF(attention, f.attention->q_norm.has_value())},
    {"clip_qkv", LS_OF(attention, OrNull(f.attention->clip_qkv))},
    {"query_pre_attn_scalar", [](const SpecFacts& f) -> Json {
       if (f.attention == nullptr || !(f.attention->query_scale.value > 0)) return kUnstated;
       return Tidy(1 / (f.attention->query_scale.value * f.attention->query_scale.value));
     }},
    {"attention_multiplier", LS_OF(attention, f.attention->query_scale.value)},
    {"scale_attn_weights", LS_OF(attention, f.attention->query_scale.value != 1)},
    {"scale_attn_by_inverse_layer_idx", InverseLayerScale},
    {"attn_logit_softcapping", LS_OF(attention, OrNull(f.attention->logit_softcap))},
    {"sliding_window", [](const SpecFacts& f) -> Json {
       return f.windowed != nullptr ? OrNull(f.windowed->sliding_window) : Json();
     }},
    {"use_sliding_window", LS_IN(f.windowed != nullptr)},
    {"layer_types", LayerTypes},
    {"no_rope_layers", NoRopeLayers},
    {"q_lora_rank", LS_OF(mla, OrNull(f.mla->q_lora_rank))},
    {"kv_lora_rank", LS_OF(mla, f.mla->kv_lora_rank)},
    {"qk_nope_head_dim", LS_OF(mla, f.mla->qk_nope_head_dim)},
    {"qk_rope_head_dim", LS_OF(mla, f.mla->qk_rope_head_dim)},
    {"qk_head_dim", LS_OF(mla, f.mla->qk_nope_head_dim + f.mla->qk_rope_head_dim)},
    {"v_head_dim", LS_OF(mla, f.mla->v_head_dim)},
    {"rope_interleave", LS_OF(mla, f.mla->rope.layout == RopeLayout::kInterleaved)},
    {"conv_L_cache", LS_OF(conv, f.conv->kernel_size)},
    {"conv_bias", LS_OF(conv, f.conv->bias)},
    {"rms_norm_eps", LS_IN(f.spec.final_norm.eps)},
    {"layer_norm_eps", LS_IN(f.spec.final_norm.eps)},
    {"layer_norm_epsilon", LS_IN(f.spec.final_norm.eps)},
    {"norm_eps", LS_IN(f.spec.final_norm.eps)},
    {"norm_epsilon", LS_IN(f.spec.final_norm.eps)},
    {"num_local_experts", LS_OF(moe, f.moe->num_experts)},
    {"num_experts", LS_OF(moe, f.moe->num_experts)},
    {"n_routed_experts", LS_OF(moe, f.moe->num_experts)},
    {"num_experts_per_tok", LS_OF(moe, f.moe->num_experts_per_tok)},
    {"moe_intermediate_size", LS_OF(moe, f.moe->expert.intermediate_size)},
    {"shared_expert_intermediate_size", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->shared_expert) return kUnstated;
       return f.moe->shared_expert->mlp.intermediate_size;
     }},
    {"n_shared_experts", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->shared_expert) return kUnstated;
       return f.moe->shared_expert->mlp.intermediate_size / f.moe->expert.intermediate_size;
     }},
    {"first_k_dense_replace", LS_OF(moe, f.LeadingDenseLayers())},
    {"num_dense_layers", LS_OF(moe, f.LeadingDenseLayers())},
    {"decoder_sparse_step", LS_OF(moe, 1)},
    {"mlp_only_layers", LS_OF(moe, DenseLayers(f))},
    {"norm_topk_prob", LS_OF(moe, f.moe->router.normalize_top_k)},
    {"routed_scaling_factor", LS_OF(moe, f.moe->router.routed_scaling.value)},
    {"scoring_func", ScoringWord},
    {"topk_method", TopKMethod},
    {"n_group", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->router.groups) return kUnstated;
       return f.moe->router.groups->n_group;
     }},
    {"topk_group", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->router.groups) return kUnstated;
       return f.moe->router.groups->topk_group;
     }},
    {"use_expert_bias", LS_OF(moe, f.moe->router.selection_bias)},
    {"router_jitter_noise", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->router.sparse_mixer_jitter) return kUnstated;
       return *f.moe->router.sparse_mixer_jitter;
     }},
    {"swiglu_alpha", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->expert.clamped_glu) return kUnstated;
       return f.moe->expert.clamped_glu->alpha;
     }},
    {"swiglu_limit", [](const SpecFacts& f) -> Json {
       if (f.moe == nullptr || !f.moe->expert.clamped_glu) return kUnstated;
       return f.moe->expert.clamped_glu->limit;
     }},
    {"embedding_multiplier", LS_IN(f.spec.embedding.scale.value)},
    {"residual_multiplier", LS_IN(f.spec.layers.front().residual.value)},
    {"logits_scaling", LS_IN(f.spec.lm_head.logit_scale.value)},
    {"logit_scale", LS_IN(f.spec.lm_head.logit_scale.value)},
    {"final_logit_softcapping", LS_IN(OrNull(f.spec.lm_head.logit_softcap))},
    {"lm_head_bias", LS_IN(f.spec.lm_head.bias)},
    {"tie_word_embeddings", LS_IN(f.spec.lm_head.tied)},
};
// clang-format on
#undef LS_OF
#undef LS_IN

// How a RoPE dictionary may be written; families differ in which they read.
struct RopeForm {
  bool nested = false;          // one dictionary for each layer type
  bool partial_stated = false;  // partial_rotary_factor also where it is 1
  bool mscales = false;         // PhiMoE's short_mscale and long_mscale
};
constexpr RopeForm kRopeForms[] = {{.nested = true},
                                   {.nested = true, .partial_stated = true},
                                   {},
                                   {.partial_stated = true},
                                   {.mscales = true}};

void StateScaling(const LinearScaling& linear, const SpecFacts&, RopeForm, Json& out) {
  out["rope_type"] = "linear";
  out["factor"] = linear.factor;
}
void StateScaling(const DynamicScaling& dynamic, const SpecFacts&, RopeForm, Json& out) {
  out["rope_type"] = "dynamic";
  out["factor"] = dynamic.factor;
}
void StateScaling(const Llama3Scaling& llama3, const SpecFacts&, RopeForm, Json& out) {
  out["rope_type"] = "llama3";
  out["factor"] = llama3.factor;
  out["low_freq_factor"] = llama3.low_freq_factor;
  out["high_freq_factor"] = llama3.high_freq_factor;
  out["original_max_position_embeddings"] = llama3.original_max_position_embeddings;
}
void StateScaling(const YarnScaling& yarn, const SpecFacts& facts, RopeForm, Json& out) {
  out["rope_type"] = "yarn";
  out["factor"] = yarn.factor;
  out["beta_fast"] = yarn.beta_fast;
  out["beta_slow"] = yarn.beta_slow;
  out["original_max_position_embeddings"] = yarn.original_max_position_embeddings;
  if (!yarn.truncate) out["truncate"] = false;
  const double all_dim = facts.mla != nullptr ? MscaleAllDim(*facts.mla) : 0;
  if (all_dim != 0) {
    out["mscale_all_dim"] = all_dim;
    if (yarn.attention_factor == 1) {
      out["mscale"] = all_dim;
      return;
    }
  }
  if (static_cast<float>(yarn.attention_factor) !=
      static_cast<float>(YarnAttentionFactor(yarn.factor)))
    out["attention_factor"] = yarn.attention_factor;
}
void StateScaling(const LongRopeScaling& longrope, const SpecFacts&, RopeForm form, Json& out) {
  out["rope_type"] = "longrope";
  out["short_factor"] = longrope.short_factor;
  out["long_factor"] = longrope.long_factor;
  out["original_max_position_embeddings"] = longrope.original_max_position_embeddings;
  out["attention_factor"] = longrope.attention_factor;
  if (form.mscales) out["short_mscale"] = out["long_mscale"] = longrope.attention_factor;
}
// Made llama3 before (WithNamedBands); what is left has no word.
void StateScaling(const FrequencyFactors&, const SpecFacts&, RopeForm, Json&) {}

Json RopeDictionary(const RopeSpec& rope, const SpecFacts& facts, RopeForm form) {
  Json out = Json::object();
  out["rope_theta"] = rope.theta;
  out["rope_type"] = "default";
  const int64_t head_dim = facts.mla != nullptr         ? facts.mla->qk_rope_head_dim
                           : facts.attention != nullptr ? facts.attention->head_dim
                                                        : rope.rotary_dim;
  if (form.partial_stated || rope.rotary_dim != head_dim)
    out["partial_rotary_factor"] =
        static_cast<double>(rope.rotary_dim) / static_cast<double>(head_dim);
  if (rope.scaling)
    std::visit([&](const auto& scaling) { StateScaling(scaling, facts, form, out); },
               *rope.scaling);
  return out;
}

void StateRope(const SpecFacts& facts, RopeForm form, Json& config) {
  if (facts.rope == nullptr) return;
  if (!form.nested) {
    config["rope_parameters"] = RopeDictionary(*facts.rope, facts, form);
    // Phi-3 and PhiMoE look for it beside the dictionary.
    const Json& dictionary = config["rope_parameters"];
    if (dictionary["rope_type"] == "longrope")
      config["original_max_position_embeddings"] = dictionary["original_max_position_embeddings"];
    return;
  }
  const RopeSpec& windowed = facts.windowed_rope != nullptr ? *facts.windowed_rope : *facts.rope;
  config["rope_parameters"] = {{"full_attention", RopeDictionary(*facts.rope, facts, form)},
                               {"sliding_attention", RopeDictionary(windowed, facts, form)}};
}

// GGUF holds llama3's bands as factors; config.json has words for them, and none for others.
ModelSpec WithNamedBands(const ModelSpec& spec, int64_t original) {
  ModelSpec out = spec;
  for (LayerSpec& layer : out.layers) {
    auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || !attention->rope || !attention->rope->scaling) continue;
    RopeSpec& rope = *attention->rope;
    const auto* factors = std::get_if<FrequencyFactors>(&*rope.scaling);
    if (factors == nullptr) continue;
    if (const auto llama3 = FitLlama3(factors->factors, rope.theta, rope.rotary_dim, original))
      rope.scaling = *llama3;
  }
  return out;
}

// Numbers that came from floats: 3.9000000953674316 was written for 3.9. They stay numbers with a
// point: transformers refuses an integer where it wants a float.
void ShortenNumbers(Json& json) {
  if (json.is_structured())
    for (Json& element : json) ShortenNumbers(element);
  if (!json.is_number_float()) return;
  const double value = json.get<double>();
  if (static_cast<double>(static_cast<float>(value)) != value) return;
  const std::string shortest = fmt::format("{}", static_cast<float>(value));
  double decimal = value;
  std::from_chars(shortest.data(), shortest.data() + shortest.size(), decimal);
  json = decimal;
}

// `negative_for_absent`: -1 says that there is no such token, where null means the class' default.
Json Propose(const SpecFacts& facts, std::string_view model_type, RopeForm form,
             bool negative_for_absent) {
  Json config = Json::object();
  config["model_type"] = model_type;
  for (const Row& row : kRows) {
    Json value = row.state(facts);
    if (!value.is_discarded()) config[std::string(row.key)] = std::move(value);
  }
  const TokenIds& tokens = facts.spec.tokens;
  const Json absent = negative_for_absent ? Json(-1) : Json();
  config["bos_token_id"] = tokens.bos ? Json(*tokens.bos) : absent;
  config["pad_token_id"] = tokens.pad ? Json(*tokens.pad) : absent;
  config["eos_token_id"] = tokens.eos.size() == 1 ? Json(tokens.eos[0])
                           : !tokens.eos.empty()  ? Json(tokens.eos)
                                                  : absent;
  StateRope(facts, form, config);
  ShortenNumbers(config);
  return config;
}

}  // namespace

Result<Json> StateInHf(const ModelSpec& spec, const HfArchitecture& architecture,
                       int64_t original_context, std::string_view place) {
  const ModelSpec named = WithNamedBands(spec, original_context);
  const SpecFacts facts(named);
  std::string why;
  size_t fewest = SIZE_MAX;
  for (const RopeForm form : kRopeForms) {
    for (const bool negative_for_absent : {false, true}) {
      Json config = Propose(facts, architecture.model_type, form, negative_for_absent);
      HfConfig reader(config, "config.json");
      auto read = architecture.build(reader);
      if (!read) {
        if (why.empty()) why = read.error().message;
        continue;
      }
      const auto differences = FactsThatDiffer(named, *read);
      if (!differences.empty()) {
        if (differences.size() < fewest)
          why = fmt::format("there it would have {}", fmt::join(differences, "; "));
        fewest = std::min(fewest, differences.size());
        continue;
      }
      Json stated = Json::object();
      stated["architectures"] = {architecture.class_name};
      for (const auto& [key, value] : config.items())
        if (key == "model_type" || reader.WasRead(key)) stated[key] = value;
      return stated;
    }
  }
  return UnsupportedError("{}: the model type {} cannot state this model: {}", place,
                          architecture.model_type, why);
}

}  // namespace lockstep

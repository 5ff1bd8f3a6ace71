#include "arch/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/quoted.h"

namespace lockstep {
namespace {

// Keys of config.json that change no number of a forward pass. A key that is neither here nor read
// by the family is reported by name. Sorted.
constexpr std::string_view kHarmlessKeys[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "_num_labels",
    "add_cross_attention",  // decoder-only models ignore it
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "embedding_dropout",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "prefix",
    "pretraining_tp",  // once split matrices for training; the sums are the same
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "residual_dropout",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};
static_assert(std::ranges::is_sorted(kHarmlessKeys));  // UnreadKeys searches it by halving

std::string Shown(const Json& value) {
  return OneLine(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
constexpr std::string_view TypeName() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int64_t>) return "an integer";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  if constexpr (std::is_same_v<T, std::vector<bool>>) return "a list of true or false";
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "a list of integers";
  if constexpr (std::is_same_v<T, std::vector<double>>) return "a list of numbers";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of strings";
}

template <typename T>
std::optional<T> Convert(const Json& value) {
  if constexpr (IsVector<T>::value) {
    if (!value.is_array()) return std::nullopt;
    T list;
    list.reserve(value.size());
    for (const Json& element : value) {
      auto converted = Convert<typename T::value_type>(element);
      if (!converted) return std::nullopt;
      list.push_back(*std::move(converted));
    }
    return list;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (value.is_boolean()) return value.get<bool>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (value.is_number_unsigned()) {
      const uint64_t number = value.get<uint64_t>();
      if (number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(number);
    } else if (value.is_number_integer()) {
      return value.get<int64_t>();
    }
  } else if constexpr (std::is_same_v<T, double>) {
    if (value.is_number() && std::isfinite(value.get<double>())) return value.get<double>();
  } else {
    if (value.is_string()) return value.get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

const Json* HfConfig::FindRaw(std::string_view key) {
  read_.insert(std::string(key));
  if (!config_.is_object()) return nullptr;
  const auto found = config_.find(std::string(key));
  return found == config_.end() || found->is_null() ? nullptr : &*found;
}

bool HfConfig::Has(std::string_view key) { return FindRaw(key) != nullptr; }

bool HfConfig::IsNull(std::string_view key) {
  read_.insert(std::string(key));
  if (!config_.is_object()) return false;
  const auto found = config_.find(std::string(key));
  return found != config_.end() && found->is_null();
}

Status HfConfig::Expect(std::string_view key, const Json& value) {
  const Json* found = FindRaw(key);
  if (found == nullptr || *found == value) return {};
  return UnsupportedError("{}: \"{}\" is {}, expected {} (this architecture has no other)", place_,
                          key, Shown(*found), Shown(value));
}

template <typename T>
Result<std::optional<T>> HfConfig::Find(std::string_view key) {
  const Json* value = FindRaw(key);
  if (value == nullptr) return std::optional<T>();
  std::optional<T> converted = Convert<T>(*value);
  if (!converted) return Bad(key, TypeName<T>());
  return converted;
}

template <typename T>
Result<T> HfConfig::Require(std::string_view key) {
  LS_TRY(std::optional<T> value, Find<T>(key));
  if (!value) return InputError("{}: \"{}\" is missing, expected {}", place_, key, TypeName<T>());
  return *std::move(value);
}

template <typename T>
Result<T> HfConfig::Get(std::string_view key, T otherwise) {
  LS_TRY(std::optional<T> value, Find<T>(key));
  return value ? *std::move(value) : std::move(otherwise);
}

#define LS_INSTANTIATE(T)                                             \
  template Result<std::optional<T>> HfConfig::Find(std::string_view); \
  template Result<T> HfConfig::Require(std::string_view);             \
  template Result<T> HfConfig::Get(std::string_view, T);
LS_INSTANTIATE(bool)
LS_INSTANTIATE(int64_t)
LS_INSTANTIATE(double)
LS_INSTANTIATE(std::string)
LS_INSTANTIATE(std::vector<bool>)
LS_INSTANTIATE(std::vector<int64_t>)
LS_INSTANTIATE(std::vector<double>)
LS_INSTANTIATE(std::vector<std::string>)
#undef LS_INSTANTIATE

Result<int64_t> HfConfig::RequireSize(std::string_view key) {
  LS_TRY(const int64_t size, Require<int64_t>(key));
  if (size < 1 || size > kMaxSize) return Bad(key, fmt::format("a size from 1 to {}", kMaxSize));
  return size;
}

Result<int64_t> HfConfig::GetSize(std::string_view key, int64_t otherwise) {
  return Has(key) ? RequireSize(key) : Result<int64_t>(otherwise);
}

Result<HfConfig*> HfConfig::RequireObject(std::string_view key) {
  const std::string place = fmt::format("{}: {}", place_, key);
  for (HfConfig& object : objects_)
    if (object.place_ == place) return &object;
  const Json* value = FindRaw(key);
  if (value == nullptr) return InputError("{}: \"{}\" is missing, expected an object", place_, key);
  if (!value->is_object()) return Bad(key, "an object");
  return &objects_.emplace_back(*value, place);
}

tl::unexpected<Error> HfConfig::Bad(std::string_view key, std::string_view expected) const {
  const auto found = config_.is_object() ? config_.find(std::string(key)) : config_.end();
  if (!config_.is_object() || found == config_.end())
    return InputError("{}: \"{}\" is missing, expected {}", place_, key, expected);
  return InputError("{}: \"{}\" is {}, expected {}", place_, key, Shown(*found), expected);
}

std::vector<std::string> HfConfig::UnreadKeys() const {
  std::vector<std::string> unread = without_effect_;
  if (!config_.is_object()) return unread;
  for (const auto& [key, value] : config_.items()) {
    if (read_.contains(key) || value.is_null()) continue;
    if (std::binary_search(std::begin(kHarmlessKeys), std::end(kHarmlessKeys), key)) continue;
    unread.push_back(key);
  }
  for (const HfConfig& object : objects_) {
    const std::string key = object.place_.substr(place_.size() + 2);
    for (const std::string& inner : object.UnreadKeys()) unread.push_back(key + "." + inner);
  }
  return unread;
}

Status RefuseQuantized(HfConfig& config) {
  const auto refuse = [](HfConfig& in, std::string_view key) -> Status {
    const Json* quantization = in.FindRaw(key);
    if (quantization == nullptr) return {};
    std::string method = "no quant_method";
    if (quantization->is_object())
      if (const auto found = quantization->find("quant_method");
          found != quantization->end() && found->is_string())
        method = "quant_method " + Quoted(found->get<std::string>());
    return UnsupportedError(
        "{}: \"{}\" states {}: the weights are codes and scales of another tool, expected F32, F16 "
        "or BF16 (use a dequantized checkpoint, or a GGUF of the model)",
        in.place(), key, method);
  };
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    LS_RETURN_IF_ERROR(refuse(config, key));
    const Json* text = config.FindRaw("text_config");
    if (text == nullptr || !text->is_object()) continue;
    LS_TRY(HfConfig * inner, config.RequireObject("text_config"));
    LS_RETURN_IF_ERROR(refuse(*inner, key));
  }
  return {};
}

Result<Activation> ParseActivation(HfConfig& config, std::string_view key,
                                   std::string_view otherwise) {
  // transformers' activations.py: several names are one formula up to rounding.
  struct Word {
    std::string_view word;
    Activation activation;
  };
  constexpr Word kWords[] = {
      {"gelu", Activation::kGelu},
      {"gelu_accurate", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_python", Activation::kGelu},
      {"gelu_python_tanh", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kRelu2},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
  };
  LS_TRY(const std::string word, config.Get<std::string>(key, std::string(otherwise)));
  std::vector<std::string_view> known;
  for (const Word& row : kWords) {
    if (row.word == word) return row.activation;
    known.push_back(row.word);
  }
  return UnsupportedError("{}: \"{}\" is {}, expected one of {}", config.place(), key, Quoted(word),
                          fmt::join(known, ", "));
}

Result<std::optional<std::vector<std::string>>> FindLayerTypes(
    HfConfig& config, int64_t num_layers, std::initializer_list<std::string_view> allowed) {
  LS_TRY(auto types, config.Find<std::vector<std::string>>("layer_types"));
  if (!types) return types;
  if (static_cast<int64_t>(types->size()) != num_layers)
    return InputError("{}: \"layer_types\" has {} entries, expected {} (the number of layers)",
                      config.place(), types->size(), num_layers);
  for (size_t i = 0; i < types->size(); ++i) {
    // transformers' _LEGACY_LAYER_TYPE_REMAP
    if ((*types)[i] == "attention") (*types)[i] = "full_attention";
    if (std::find(allowed.begin(), allowed.end(), (*types)[i]) == allowed.end())
      return InputError("{}: \"layer_types\"[{}] is {}, expected one of {}", config.place(), i,
                        Quoted((*types)[i]), fmt::join(allowed, ", "));
  }
  return types;
}

Result<TokenIds> ParseTokenIds(HfConfig& config, const CommonDefaults& defaults) {
  // -1 stands for "none" in many files. Ids past the vocabulary are kept: they never occur.
  const auto one = [&](std::string_view key,
                       std::optional<int64_t> otherwise) -> Result<std::optional<int64_t>> {
    LS_TRY(const std::optional<int64_t> id, config.Find<int64_t>(key));
    if (!id) return otherwise;
    return *id < 0 ? std::nullopt : id;
  };
  TokenIds tokens;
  const Json* bos = config.FindRaw("bos_token_id");
  if (bos != nullptr && bos->is_array()) {
    LS_TRY(const auto ids, config.Require<std::vector<int64_t>>("bos_token_id"));
    if (!ids.empty() && ids[0] >= 0) tokens.bos = ids[0];
  } else {
    LS_TRY(tokens.bos, one("bos_token_id", defaults.bos_token_id));
  }
  LS_TRY(tokens.pad, one("pad_token_id", defaults.pad_token_id));
  const Json* eos = config.FindRaw("eos_token_id");
  if (eos != nullptr && eos->is_array()) {
    LS_TRY(const auto ids, config.Require<std::vector<int64_t>>("eos_token_id"));
    for (const int64_t id : ids)
      if (id >= 0) tokens.eos.push_back(id);
  } else {
    LS_TRY(const std::optional<int64_t> id, one("eos_token_id", defaults.eos_token_id));
    if (id) tokens.eos.push_back(*id);
  }
  return tokens;
}

Result<ModelSpec> ParseCommon(HfConfig& config, const CommonDefaults& defaults) {
  ModelSpec spec;
  LS_TRY(spec.architecture, config.Get<std::string>("model_type", ""));
  const auto size = [&](std::string_view key, int64_t otherwise) {
    return otherwise > 0 ? config.GetSize(key, otherwise) : config.RequireSize(key);
  };
  LS_TRY(spec.embedding.vocab_size, size("vocab_size", defaults.vocab_size));
  LS_TRY(spec.embedding.hidden_size, size("hidden_size", defaults.hidden_size));
  if (defaults.max_position_embeddings > 0 && !config.Has("max_position_embeddings")) {
    spec.max_position_embeddings = defaults.max_position_embeddings;
  } else {
    LS_TRY(spec.max_position_embeddings, config.Require<int64_t>("max_position_embeddings"));
    if (spec.max_position_embeddings < 1 || spec.max_position_embeddings > kMaxLength)
      return config.Bad("max_position_embeddings", fmt::format("1 to {}", kMaxLength));
  }
  LS_TRY(spec.lm_head.tied,
         config.Get<bool>("tie_word_embeddings", bool{defaults.tie_word_embeddings}));
  LS_TRY(spec.tokens, ParseTokenIds(config, defaults));
  return spec;
}

Result<int64_t> ParseNumLayers(HfConfig& config, int64_t otherwise, std::string_view key) {
  if (otherwise > 0 && !config.Has(key)) return otherwise;
  LS_TRY(const int64_t layers, config.Require<int64_t>(key));
  if (layers < 1 || layers > kMaxConfigLayers)
    return config.Bad(key, fmt::format("1 to {} layers", kMaxConfigLayers));
  return layers;
}

Result<AttentionSpec> ParseHeads(HfConfig& config, int64_t hidden_size,
                                 const HeadDefaults& defaults) {
  AttentionSpec attention;
  if (defaults.num_attention_heads > 0) {
    LS_TRY(attention.num_attention_heads,
           config.GetSize("num_attention_heads", defaults.num_attention_heads));
  } else {
    LS_TRY(attention.num_attention_heads, config.RequireSize("num_attention_heads"));
  }
  const int64_t heads = attention.num_attention_heads;
  const bool as_many = defaults.num_key_value_heads == 0 || config.IsNull("num_key_value_heads");
  LS_TRY(attention.num_key_value_heads,
         config.GetSize("num_key_value_heads", as_many ? heads : defaults.num_key_value_heads));
  if (heads % attention.num_key_value_heads != 0)
    return config.Bad("num_key_value_heads",
                      fmt::format("a divisor of the {} attention heads", heads));
  if (defaults.read_head_dim && config.Has("head_dim")) {
    LS_TRY(attention.head_dim, config.RequireSize("head_dim"));
  } else if (defaults.head_dim > 0 && !config.IsNull("head_dim")) {
    attention.head_dim = defaults.head_dim;
  } else {
    if (hidden_size % heads != 0)
      return config.Bad(
          "num_attention_heads",
          fmt::format("a divisor of hidden_size {} (there is no head_dim)", hidden_size));
    attention.head_dim = hidden_size / heads;
  }
  if (heads > kMaxSize / attention.head_dim)
    return config.Bad("num_attention_heads",
                      fmt::format("at most {} (heads times head_dim {})",
                                  kMaxSize / attention.head_dim, attention.head_dim));
  attention.query_scale.value = 1 / std::sqrt(static_cast<double>(attention.head_dim));
  return attention;
}

Result<std::optional<int64_t>> ParseSlidingWindow(HfConfig& config,
                                                  std::optional<int64_t> otherwise,
                                                  std::string_view key) {
  if (config.IsNull(key)) return std::optional<int64_t>();
  if (!config.Has(key)) return otherwise;
  LS_TRY(const std::optional<int64_t> window, config.Find<int64_t>(key));
  if (*window < 1 || *window > kMaxLength)
    return config.Bad(key, fmt::format("a window of 1 to {}, or null for none", kMaxLength));
  return window;
}

Result<std::optional<double>> ParseOptional(HfConfig& config, std::string_view key,
                                            std::optional<double> otherwise) {
  if (config.IsNull(key)) return std::optional<double>();
  LS_TRY(const std::optional<double> value, config.Find<double>(key));
  if (!value) return otherwise;
  if (!(*value > 0)) return config.Bad(key, "a number above 0, or null for none");
  return value;
}

Result<double> GetPositive(HfConfig& config, std::string_view key, double otherwise) {
  LS_TRY(const double value, config.Get<double>(key, double{otherwise}));
  if (!(value > 0)) return config.Bad(key, "a number above 0");
  return value;
}

}  // namespace lockstep

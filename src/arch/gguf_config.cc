#include "arch/gguf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "arch/hf_config.h"
#include "base/quoted.h"

namespace lockstep {
namespace {

// The value as a message shows it.
std::string Show(const GgufValue& value) {
  return OneLine(value.ToJson().dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

std::string QuotedKey(std::string_view architecture, std::string_view key) {
  return Quoted(fmt::format("{}.{}", architecture, key));
}

// GGUF writers store floats as float32, so that an eps of 1e-05 comes back as 9.99999974738e-06.
// The shortest decimal that names the same float32 is what was written: used as a float it is the
// stored number bit for bit, and in double it is the number the model was made with.
double Unrounded(const GgufValue& value, double stored) {
  if (value.type != GgufType::kF32 && value.element_type != GgufType::kF32) return stored;
  const auto narrow = static_cast<float>(stored);
  const std::string shortest = fmt::format("{}", narrow);
  double decimal = stored;
  std::from_chars(shortest.data(), shortest.data() + shortest.size(), decimal);
  return decimal;
}

template <typename T>
constexpr std::string_view kExpected = {};
template <>
constexpr std::string_view kExpected<bool> = "a bool";
template <>
constexpr std::string_view kExpected<int64_t> = "an integer that fits in 64 bits";
template <>
constexpr std::string_view kExpected<double> = "a finite number";
template <>
constexpr std::string_view kExpected<std::string> = "a string";
template <>
constexpr std::string_view kExpected<std::vector<int64_t>> = "an array of integers";
template <>
constexpr std::string_view kExpected<std::vector<double>> = "an array of finite numbers";
template <>
constexpr std::string_view kExpected<std::vector<bool>> = "an array of bools";

// The value as a T; nullopt when it is something else.
template <typename T>
std::optional<T> Convert(const GgufValue& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.AsBool();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return value.AsInt();
  } else if constexpr (std::is_same_v<T, double>) {
    const std::optional<double> number = value.AsDouble();
    if (!number || !std::isfinite(*number)) return std::nullopt;
    return Unrounded(value, *number);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const std::optional<std::string_view> text = value.AsString();
    if (!text) return std::nullopt;
    return std::string(*text);
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return value.AsInts();
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    std::optional<std::vector<double>> numbers = value.AsDoubles();
    if (!numbers) return std::nullopt;
    for (double& number : *numbers) {
      if (!std::isfinite(number)) return std::nullopt;
      number = Unrounded(value, number);
    }
    return numbers;
  } else {
    if (value.type != GgufType::kArray || value.element_type != GgufType::kBool)
      return std::nullopt;
    const std::optional<std::vector<int64_t>> bits = value.AsInts();
    if (!bits) return std::nullopt;
    return std::vector<bool>(bits->begin(), bits->end());
  }
}

}  // namespace

GgufConfig::GgufConfig(const Checkpoint& checkpoint, std::string architecture)
    : checkpoint_(checkpoint), architecture_(std::move(architecture)) {}

std::string GgufConfig::place() const { return checkpoint_.path.string(); }

const GgufValue* GgufConfig::FindRaw(std::string_view key) {
  std::string full = fmt::format("{}.{}", architecture_, key);
  const GgufValue* value = checkpoint_.gguf.Find(full);
  read_.insert(std::move(full));
  return value;
}

tl::unexpected<Error> GgufConfig::Bad(std::string_view key, std::string_view expected) const {
  const GgufValue* value = checkpoint_.gguf.Find(fmt::format("{}.{}", architecture_, key));
  if (value == nullptr) {
    return InputError("{}: key {} is missing, expected {}", place(), QuotedKey(architecture_, key),
                      expected);
  }
  return InputError("{}: key {} is {}, expected {}", place(), QuotedKey(architecture_, key),
                    Show(*value), expected);
}

template <typename T>
Result<std::optional<T>> GgufConfig::Find(std::string_view key) {
  const GgufValue* value = FindRaw(key);
  if (value == nullptr) return std::optional<T>{};
  std::optional<T> converted = Convert<T>(*value);
  if (!converted) return Bad(key, kExpected<T>);
  return converted;
}

template <typename T>
Result<T> GgufConfig::Require(std::string_view key) {
  LS_TRY(std::optional<T> value, Find<T>(key));
  if (!value) return Bad(key, kExpected<T>);
  return *std::move(value);
}

template <typename T>
Result<T> GgufConfig::Get(std::string_view key, T otherwise) {
  LS_TRY(std::optional<T> value, Find<T>(key));
  return value ? *std::move(value) : std::move(otherwise);
}

#define LS_INSTANTIATE(...)                                                                    \
  template Result<std::optional<__VA_ARGS__>> GgufConfig::Find<__VA_ARGS__>(std::string_view); \
  template Result<__VA_ARGS__> GgufConfig::Require<__VA_ARGS__>(std::string_view);             \
  template Result<__VA_ARGS__> GgufConfig::Get<__VA_ARGS__>(std::string_view, __VA_ARGS__)
LS_INSTANTIATE(bool);
LS_INSTANTIATE(int64_t);
LS_INSTANTIATE(double);
LS_INSTANTIATE(std::string);
LS_INSTANTIATE(std::vector<int64_t>);
LS_INSTANTIATE(std::vector<double>);
LS_INSTANTIATE(std::vector<bool>);
#undef LS_INSTANTIATE

Result<int64_t> GgufConfig::RequireSize(std::string_view key) {
  return RequireCount(key, kMaxSize);
}

Result<int64_t> GgufConfig::GetSize(std::string_view key, int64_t otherwise) {
  LS_TRY(const std::optional<int64_t> size, Find<int64_t>(key));
  return size ? RequireSize(key) : otherwise;
}

Result<int64_t> GgufConfig::RequireCount(std::string_view key, int64_t max) {
  LS_TRY(const int64_t count, Require<int64_t>(key));
  if (count < 1 || count > max) return Bad(key, fmt::format("a number from 1 to {}", max));
  return count;
}

Result<int64_t> GgufConfig::RequireLayers() {
  return RequireCount("block_count", kMaxConfigLayers);
}

Result<std::vector<int64_t>> GgufConfig::RequirePerLayer(std::string_view key, int64_t num_layers) {
  const GgufValue* value = FindRaw(key);
  std::vector<int64_t> sizes;
  if (value != nullptr && value->type == GgufType::kArray) {
    if (value->count != static_cast<uint64_t>(num_layers))
      return Bad(key, fmt::format("{} integers, one per layer", num_layers));
    LS_TRY(sizes, Require<std::vector<int64_t>>(key));
  } else {
    LS_TRY(const int64_t size, Require<int64_t>(key));
    sizes.assign(static_cast<size_t>(num_layers), size);
  }
  for (const int64_t size : sizes)
    if (size < 0 || size > kMaxSize)
      return Bad(key, fmt::format("sizes between 0 and {}", kMaxSize));
  return sizes;
}

bool GgufConfig::HasTensor(std::string_view name) const {
  return checkpoint_.Find(name) != nullptr;
}

Result<std::optional<std::vector<double>>> GgufConfig::FindTensor(std::string_view name,
                                                                  int64_t size) {
  const TensorInfo* tensor = checkpoint_.Find(name);
  if (tensor == nullptr) return std::optional<std::vector<double>>{};
  tensors_read_.emplace(name);
  if (!tensor->type->weights)
    return InputError("{}: tensor \"{}\" is stored as {} ({}), expected numbers with a fraction",
                      place(), name, tensor->type->name, tensor->type->description);
  if (tensor->elements() != size) {
    return InputError("{}: tensor \"{}\" has {} elements, expected {}", place(), name,
                      tensor->elements(), size);
  }
  if (size % tensor->type->block_elements != 0)
    return InputError("{}: tensor \"{}\" has a type without whole blocks", place(), name);
  std::vector<float> narrow(static_cast<size_t>(size));
  tensor->type->dequantize(tensor->data.data(), size, narrow.data());
  for (const float element : narrow) {
    if (!std::isfinite(element))
      return InputError("{}: tensor \"{}\" holds {}, expected finite numbers", place(), name,
                        element);
  }
  return std::vector<double>(narrow.begin(), narrow.end());
}

int64_t GgufConfig::VocabSize() const {
  const TensorInfo* tensor = checkpoint_.Find("token_embd.weight");
  return tensor == nullptr || tensor->shape.size() != 2 ? 0 : tensor->shape[0];
}

std::vector<std::string> GgufConfig::UnreadKeys() const {
  std::vector<std::string> unread;
  const std::string prefix = architecture_ + ".";
  for (const auto& [key, value] : checkpoint_.gguf.values())
    if (key.starts_with(prefix) && !read_.contains(key)) unread.push_back(key);
  return unread;
}

Result<std::vector<AttentionSpec>> ParseGgufHeads(GgufConfig& config, int64_t hidden_size,
                                                  int64_t num_layers) {
  LS_TRY(const auto heads, config.RequirePerLayer("attention.head_count", num_layers));
  std::vector<int64_t> kv_heads = heads;
  if (config.FindRaw("attention.head_count_kv") != nullptr) {
    LS_TRY(kv_heads, config.RequirePerLayer("attention.head_count_kv", num_layers));
  }
  LS_TRY(const std::optional<int64_t> key_length, config.Find<int64_t>("attention.key_length"));
  if (key_length) LS_RETURN_IF_ERROR(config.RequireSize("attention.key_length"));
  LS_TRY(const int64_t value_length,
         config.GetSize("attention.value_length", key_length.value_or(0)));
  std::vector<AttentionSpec> layers(static_cast<size_t>(num_layers));
  for (size_t i = 0; i < layers.size(); ++i) {
    AttentionSpec& attention = layers[i];
    attention.num_attention_heads = heads[i];
    attention.num_key_value_heads = kv_heads[i];
    if (heads[i] < 1 || (kv_heads[i] > 0 && heads[i] % kv_heads[i] != 0)) {
      return InputError(
          "{}: layer {} has attention.head_count {} and attention.head_count_kv {}, expected the "
          "second to divide the first",
          config.place(), i, heads[i], kv_heads[i]);
    }
    if (!key_length && hidden_size % heads[i] != 0)
      return config.Bad(
          "attention.head_count",
          fmt::format("a divisor of embedding_length {} (there is no key_length)", hidden_size));
    attention.head_dim = key_length.value_or(hidden_size / heads[i]);
    if (value_length != 0 && value_length != attention.head_dim)
      return config.Bad("attention.value_length",
                        fmt::format("the length of a key, {}", attention.head_dim));
    if (heads[i] > kMaxSize / attention.head_dim)
      return config.Bad("attention.head_count",
                        fmt::format("at most {} (heads times key length {})",
                                    kMaxSize / attention.head_dim, attention.head_dim));
    attention.query_scale.value = 1 / std::sqrt(static_cast<double>(attention.head_dim));
  }
  return layers;
}

Result<double> GetGgufPositive(GgufConfig& config, std::string_view key, double otherwise) {
  LS_TRY(const double value, config.Get<double>(key, 0));
  if (value < 0) return config.Bad(key, "a number above 0");
  return value == 0 ? otherwise : value;
}

Result<ModelSpec> ParseGgufCommon(GgufConfig& config) {
  ModelSpec spec;
  spec.architecture = config.architecture();
  LS_TRY(spec.max_position_embeddings, config.RequireCount("context_length", kMaxLength));
  LS_TRY(spec.embedding.hidden_size, config.RequireSize("embedding_length"));
  // The tensor decides: the key vocab_size is optional, and the tokenizer may know fewer tokens
  // than the embedding has rows.
  spec.embedding.vocab_size = config.VocabSize();
  if (spec.embedding.vocab_size < 1) {
    return InputError(
        "{}: tensor \"token_embd.weight\" is missing or no matrix, expected [vocabulary, {}] (is "
        "this file the first part of a split model?)",
        config.place(), spec.embedding.hidden_size);
  }
  config.FindRaw("vocab_size");
  // GGUF has no key for a tied head: the file just leaves the second copy out.
  spec.lm_head.tied = !config.HasTensor("output.weight");
  LS_TRY(spec.tokens.bos, config.FindTokenId("bos_token_id"));
  LS_TRY(spec.tokens.pad, config.FindTokenId("padding_token_id"));
  for (const std::string_view key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    LS_TRY(const std::optional<int64_t> id, config.FindTokenId(key));
    std::vector<int64_t>& eos = spec.tokens.eos;
    if (id && std::find(eos.begin(), eos.end(), *id) == eos.end()) eos.push_back(*id);
  }
  return spec;
}

Result<std::optional<int64_t>> GgufConfig::FindTokenId(std::string_view key) const {
  const std::string full = fmt::format("tokenizer.ggml.{}", key);
  const GgufValue* value = checkpoint_.gguf.Find(full);
  if (value == nullptr) return std::optional<int64_t>{};
  const std::optional<int64_t> id = value->AsInt();
  // Converters of old wrote -1 (as 2^32 - 1 when unsigned) for "none".
  if (id && (*id == -1 || *id == 0xffffffff)) return std::optional<int64_t>{};
  if (!id || *id < 0 || *id >= std::max<int64_t>(VocabSize(), 1)) {
    return InputError("{}: key \"{}\" is {}, expected a token id below {}", place(), full,
                      Show(*value), VocabSize());
  }
  return id;
}

}  // namespace lockstep

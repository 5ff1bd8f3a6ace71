#include "export/genai/genai_config_json.h"

#include <algorithm>
#include <cmath>

#include "base/quoted.h"

namespace lockstep::genai {
namespace {

enum class Kind : uint8_t { kFlag, kInteger, kReal };

// Settings of generation_config.json that the runtime's search section has under the same name, and
// what transformers takes where the file says nothing.
struct Setting {
  const char* name;
  Kind kind;
  double otherwise;
};
constexpr Setting kSettings[] = {
    {"diversity_penalty", Kind::kReal, 0},  {"do_sample", Kind::kFlag, 0},
    {"early_stopping", Kind::kFlag, 1},     {"length_penalty", Kind::kReal, 1},
    {"min_length", Kind::kInteger, 0},      {"no_repeat_ngram_size", Kind::kInteger, 0},
    {"num_beams", Kind::kInteger, 1},       {"num_return_sequences", Kind::kInteger, 1},
    {"repetition_penalty", Kind::kReal, 1}, {"temperature", Kind::kReal, 1},
    {"top_k", Kind::kInteger, 50},          {"top_p", Kind::kReal, 1},
};

// Keys that change nothing about which token comes next, or that stand elsewhere in the file.
constexpr std::string_view kSilent[] = {
    "_from_model_config",   "bos_token_id",   "cache_implementation",   "eos_token_id",
    "max_length",           "max_new_tokens", "output_attentions",      "output_hidden_states",
    "output_logits",        "output_scores",  "pad_token_id",           "return_dict_in_generate",
    "transformers_version", "use_cache",      "decoder_start_token_id", "prefill_chunk_size",
};

// Values with which a setting does nothing.
bool ChangesNothing(const Json& value) {
  return value.is_null() || value == Json(false) ||
         (value.is_number() && value.get<double>() == 0) || (value.is_array() && value.empty()) ||
         (value.is_object() && value.empty());
}

std::optional<Json> Fitting(const Json& value, Kind kind) {
  switch (kind) {
    case Kind::kFlag:
      if (value.is_boolean()) return value;
      break;
    case Kind::kInteger:
      if (value.is_number_integer()) return value;
      if (value.is_number() && std::nearbyint(value.get<double>()) == value.get<double>() &&
          std::abs(value.get<double>()) < 1e9)
        return Json(static_cast<int64_t>(value.get<double>()));
      break;
    case Kind::kReal:
      if (value.is_number() && std::isfinite(value.get<double>())) return value;
      break;
  }
  return std::nullopt;
}

Json Default(const Setting& setting) {
  if (setting.kind == Kind::kFlag) return setting.otherwise != 0;
  if (setting.kind == Kind::kInteger) return static_cast<int64_t>(setting.otherwise);
  return setting.otherwise;
}

Json Search(const Model& model, const GraphBuilder& b, std::vector<std::string>& notes) {
  Json search = Json::object();
  const Json& given = model.checkpoint.generation_config;
  const auto find = [&](std::string_view key) -> const Json* {
    if (!given.is_object()) return nullptr;
    const auto at = given.find(std::string(key));
    return at == given.end() || at->is_null() ? nullptr : &*at;
  };
  for (const Setting& setting : kSettings) {
    search[setting.name] = Default(setting);
    const Json* value = find(setting.name);
    if (value == nullptr) continue;
    if (auto fitting = Fitting(*value, setting.kind))
      search[setting.name] = *std::move(fitting);
    else
      notes.push_back(fmt::format(
          "generation_config.json: {} is {}, which genai_config.json cannot say; left at {}",
          setting.name, OneLine(value->dump(-1, ' ', true), 60), Default(setting).dump()));
  }
  // More sequences than beams are refused by the runtime.
  if (search["num_return_sequences"] > search["num_beams"]) search["num_return_sequences"] = 1;
  if (search["no_repeat_ngram_size"] != 0)
    notes.push_back(
        "generation_config.json: no_repeat_ngram_size is carried over, but onnxruntime-genai 0.18 "
        "reads the key and does not act on it");
  int64_t most = b.context_length;
  // Beyond the length that the checkpoint was made for a cache of the whole context is rarely
  // meant.
  if (model.spec.max_position_embeddings > 0 && most > 4 * model.spec.max_position_embeddings)
    most = most / 4;
  if (const Json* length = find("max_length"); length != nullptr && length->is_number_integer())
    most = std::clamp<int64_t>(length->get<int64_t>(), 1, b.context_length);
  search["max_length"] = most;
  search["past_present_share_buffer"] = !b.keys.empty();
  for (auto it = given.begin(); given.is_object() && it != given.end(); ++it) {
    const std::string& key = it.key();
    const bool known = std::any_of(std::begin(kSettings), std::end(kSettings),
                                   [&](const Setting& setting) { return setting.name == key; }) ||
                       std::find(std::begin(kSilent), std::end(kSilent), key) != std::end(kSilent);
    if (!known && !ChangesNothing(it.value()))
      notes.push_back(fmt::format(
          "generation_config.json: {} has no place in genai_config.json and is not carried over",
          Quoted(key)));
  }
  return search;
}

// generation_config.json decides where it says something, as in transformers.
TokenIds TokensOf(const Model& model) {
  TokenIds tokens = model.spec.tokens;
  const Json& given = model.checkpoint.generation_config;
  const auto ids = [&](const char* key) {
    std::vector<int64_t> out;
    const auto at = given.is_object() ? given.find(key) : given.end();
    if (at == given.end()) return out;
    if (at->is_number_integer()) out.push_back(at->get<int64_t>());
    for (size_t i = 0; at->is_array() && i < at->size(); ++i)
      if ((*at)[i].is_number_integer()) out.push_back((*at)[i].get<int64_t>());
    return out;
  };
  if (const auto eos = ids("eos_token_id"); !eos.empty()) tokens.eos = eos;
  if (const auto bos = ids("bos_token_id"); bos.size() == 1) tokens.bos = bos[0];
  if (const auto pad = ids("pad_token_id"); pad.size() == 1) tokens.pad = pad[0];
  return tokens;
}

bool AnyExperts(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return std::holds_alternative<MoeSpec>(layer.mlp);
  });
}

Json Decoder(const ModelSpec& spec, const GraphBuilder& b) {
  Json decoder = Json::object();
  decoder["session_options"] = {{"log_id", "onnxruntime-genai"},
                                {"provider_options", Json::array()}};
  if (b.options.execution_provider == "cuda")
    decoder["session_options"]["provider_options"].push_back({{"cuda", Json::object()}});
  decoder["filename"] = "model.onnx";
  // A size is wanted also where nothing is cached.
  decoder["head_size"] = std::max<int64_t>(b.cache_head_size, 1);
  decoder["hidden_size"] = spec.embedding.hidden_size;
  Json inputs = {{"input_ids", "input_ids"}, {"attention_mask", "attention_mask"}};
  Json outputs = {{"logits", "logits"}};
  if (!b.keys.empty()) {
    inputs["past_key_names"] = "past_key_values.%d.key";
    inputs["past_value_names"] = "past_key_values.%d.value";
    outputs["present_key_names"] = "present.%d.key";
    outputs["present_value_names"] = "present.%d.value";
  }
  if (!b.states.empty()) {
    inputs["past_conv_names"] = "past.%d.conv";
    outputs["present_conv_names"] = "present.%d.conv";
  }
  decoder["inputs"] = std::move(inputs);
  decoder["outputs"] = std::move(outputs);
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) {
      decoder["num_attention_heads"] = a->num_attention_heads;
      decoder["num_key_value_heads"] = a->num_key_value_heads;
      break;
    }
    if (const auto* a = std::get_if<MlaSpec>(&layer.mixer)) {
      decoder["num_attention_heads"] = a->num_attention_heads;
      decoder["num_key_value_heads"] = a->num_attention_heads;
      break;
    }
  }
  decoder["num_hidden_layers"] = spec.layers.size();
  if (!b.states.empty()) {
    Json& types = decoder["layer_types"] = Json::array();
    for (const LayerSpec& layer : spec.layers)
      types.push_back(std::holds_alternative<ShortConvSpec>(layer.mixer) ? "conv"
                                                                         : "full_attention");
    decoder["conv_cache_size"] = b.states.front().dims->back().value.value_or(0);
  }
  return decoder;
}

}  // namespace

Json GenAiConfigJson(const Model& model, const GraphBuilder& b, std::vector<std::string>& notes) {
  const ModelSpec& spec = model.spec;
  Json json = Json::object();
  Json& m = json["model"] = Json::object();
  // The runtime decides by the type how it feeds a graph: a plain decoder, or one with states of
  // convolutions.
  m["type"] = b.states.empty() ? "decoder" : AnyExperts(spec) ? "lfm2_moe" : "lfm2";
  m["context_length"] = b.context_length;
  m["vocab_size"] = spec.embedding.vocab_size;
  const TokenIds tokens = TokensOf(model);
  if (tokens.bos) m["bos_token_id"] = *tokens.bos;
  if (tokens.eos.size() == 1) {
    m["eos_token_id"] = tokens.eos[0];
  } else if (!tokens.eos.empty()) {
    m["eos_token_id"] = tokens.eos;
  } else {
    // Absent would mean token 0.
    m["eos_token_id"] = Json::array();
    notes.push_back(
        "the checkpoint names no token that ends a text: generation ends at max_length");
  }
  if (tokens.pad)
    m["pad_token_id"] = *tokens.pad;
  else if (!tokens.eos.empty())
    m["pad_token_id"] = tokens.eos[0];
  m["decoder"] = Decoder(spec, b);
  json["search"] = Search(model, b, notes);
  return json;
}

}  // namespace lockstep::genai

#include "engine/generation_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/quoted.h"

namespace lockstep {
namespace {

constexpr int64_t kDefaultTopK = 50;  // transformers' own default under do_sample

// Keys that cannot change which token is chosen here: bookkeeping, output and memory of
// transformers.
constexpr std::array<std::string_view, 27> kInert = {
    "_from_model_config",   "assistant_model",
    "bos_token_id",         "cache_config",
    "cache_implementation", "chat_format",
    "compile_config",       "decoder_start_token_id",
    "disable_compile",      "generation_kwargs",
    "low_memory",           "max_time",
    "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_logits",
    "output_scores",        "pad_token_id",
    "prefill_chunk_size",   "return_dict_in_generate",
    "return_legacy_cache",  "transformers_version",
    "trust_remote_code",    "use_cache",
    "is_assistant",         "remove_unused_columns",
    "max_window_size"};

// Other keys that are off at these values.
bool IsOff(std::string_view key, const Json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return true;
  if (value.is_array() && value.empty()) return true;
  if (!value.is_number()) return false;
  const double x = value.get<double>();
  if (key == "num_beams" || key == "num_beam_groups" || key == "length_penalty" ||
      key == "encoder_repetition_penalty" || key == "guidance_scale" || key == "top_h")
    return x == 1;
  return x == 0;
}

class Reader {
 public:
  Reader(const Json& json, std::string_view place) : json_(json), place_(place) {}

  const Json* Find(std::string_view key) {
    read_.emplace_back(key);
    const auto it = json_.find(std::string(key));
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  template <typename... Args>
  tl::unexpected<Error> Fail(std::string_view key, std::string_view wanted, const Json& found) {
    return InputError("{}: \"{}\" should be {} but is {}", place_, key, wanted,
                      OneLine(found.dump(-1, ' ', false, Json::error_handler_t::replace), 80));
  }

  Status Read(std::string_view key, bool& out) {
    const Json* value = Find(key);
    if (!value) return {};
    if (!value->is_boolean()) return Fail(key, "true or false", *value);
    out = value->get<bool>();
    return {};
  }
  Status Read(std::string_view key, std::optional<double>& out) {
    const Json* value = Find(key);
    if (!value) return {};
    if (!value->is_number()) return Fail(key, "a number", *value);
    out = value->get<double>();
    return {};
  }
  Status Read(std::string_view key, std::optional<int64_t>& out) {
    const Json* value = Find(key);
    if (!value) return {};
    if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)
      return Fail(key, "an integer of at most 63 bits", *value);
    if (!value->is_number_integer()) return Fail(key, "an integer", *value);
    out = value->get<int64_t>();
    return {};
  }
  Result<int32_t> Id(std::string_view key, const Json& value) {
    if (!value.is_number_integer() || value.get<double>() < 0 ||
        value.get<double>() > std::numeric_limits<int32_t>::max())
      return Fail(key, "a token id", value);
    return value.get<int32_t>();
  }
  // One id or a list of them.
  Status Read(std::string_view key, std::vector<int32_t>& out) {
    const Json* value = Find(key);
    if (!value) return {};
    if (!value->is_array()) {
      LS_TRY(const int32_t id, Id(key, *value));
      out = {id};
      return {};
    }
    return ReadIds(key, *value, out);
  }
  Status ReadIds(std::string_view key, const Json& list, std::vector<int32_t>& out) {
    if (!list.is_array()) return Fail(key, "a list of token ids", list);
    out.clear();
    for (const Json& item : list) {
      LS_TRY(const int32_t id, Id(key, item));
      out.push_back(id);
    }
    return {};
  }
  // A number, or "-inf": JSON has no infinity of its own.
  Result<double> Bias(std::string_view key, const Json& value) {
    if (value.is_string() && (value == "-inf" || value == "-Infinity"))
      return -std::numeric_limits<double>::infinity();
    if (!value.is_number()) return Fail(key, "a number or \"-inf\"", value);
    return value.get<double>();
  }

  std::vector<std::string> Unread() const {
    std::vector<std::string> warnings;
    for (const auto& [key, value] : json_.items()) {
      const bool known = std::find(read_.begin(), read_.end(), key) != read_.end() ||
                         std::find(kInert.begin(), kInert.end(), key) != kInert.end();
      if (!known && !IsOff(key, value))
        warnings.push_back(
            fmt::format("{}: {} is not known here and has no effect; results may differ from "
                        "transformers",
                        place_, Quoted(key)));
    }
    return warnings;
  }

 private:
  const Json& json_;
  std::string_view place_;
  std::vector<std::string> read_;
};

Status ReadBiases(Reader& reader, GenerationConfig& config) {
  if (const Json* list = reader.Find("sequence_bias")) {
    if (!list->is_array()) return reader.Fail("sequence_bias", "a list of [ids, bias]", *list);
    for (const Json& entry : *list) {
      if (!entry.is_array() || entry.size() != 2)
        return reader.Fail("sequence_bias", "a list of [ids, bias]", entry);
      std::vector<int32_t> ids;
      LS_RETURN_IF_ERROR(reader.ReadIds("sequence_bias", entry[0], ids));
      LS_TRY(const double bias, reader.Bias("sequence_bias", entry[1]));
      config.sequence_bias.emplace_back(std::move(ids), bias);
    }
  }
  if (const Json* map = reader.Find("logit_bias")) {
    if (!map->is_object()) return reader.Fail("logit_bias", "an object from id to bias", *map);
    for (const auto& [key, value] : map->items()) {
      int32_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (key.empty() || key[0] == '-' || end != key.data() + key.size() || error != std::errc())
        return reader.Fail("logit_bias", "an object from id to bias", *map);
      LS_TRY(const double bias, reader.Bias("logit_bias", value));
      config.logit_bias.emplace_back(id, bias);
    }
  }
  if (const Json* list = reader.Find("bad_words_ids")) {
    if (!list->is_array()) return reader.Fail("bad_words_ids", "a list of lists of ids", *list);
    for (const Json& entry : *list) {
      std::vector<int32_t> ids;
      LS_RETURN_IF_ERROR(reader.ReadIds("bad_words_ids", entry, ids));
      config.bad_words_ids.push_back(std::move(ids));
    }
  }
  if (const Json* pair = reader.Find("exponential_decay_length_penalty")) {
    if (!pair->is_array() || pair->size() != 2 || !(*pair)[0].is_number_integer() ||
        !(*pair)[1].is_number())
      return reader.Fail("exponential_decay_length_penalty", "[start, factor]", *pair);
    config.exponential_decay_length_penalty = {(*pair)[0].get<int64_t>(), (*pair)[1].get<double>()};
  }
  return {};
}

}  // namespace

GenerationConfig GenerationConfig::Greedy() const {
  GenerationConfig greedy;
  greedy.eos_token_id = eos_token_id;
  greedy.max_new_tokens = max_new_tokens;
  greedy.max_length = max_length;
  greedy.stop_strings = stop_strings;
  return greedy;
}

Result<ParsedGenerationConfig> ParseGenerationConfig(const Json& json, std::string_view place) {
  if (!json.is_object()) return InputError("{}: expected a JSON object", place);
  ParsedGenerationConfig parsed;
  GenerationConfig& c = parsed.config;
  Reader reader(json, place);
  LS_RETURN_IF_ERROR(reader.Read("eos_token_id", c.eos_token_id));
  LS_RETURN_IF_ERROR(reader.Read("max_new_tokens", c.max_new_tokens));
  LS_RETURN_IF_ERROR(reader.Read("max_length", c.max_length));
  LS_RETURN_IF_ERROR(reader.Read("do_sample", c.do_sample));
  LS_RETURN_IF_ERROR(reader.Read("temperature", c.temperature));
  LS_RETURN_IF_ERROR(reader.Read("top_k", c.top_k));
  LS_RETURN_IF_ERROR(reader.Read("top_p", c.top_p));
  LS_RETURN_IF_ERROR(reader.Read("min_p", c.min_p));
  LS_RETURN_IF_ERROR(reader.Read("typical_p", c.typical_p));
  LS_RETURN_IF_ERROR(reader.Read("epsilon_cutoff", c.epsilon_cutoff));
  LS_RETURN_IF_ERROR(reader.Read("eta_cutoff", c.eta_cutoff));
  LS_RETURN_IF_ERROR(reader.Read("renormalize_logits", c.renormalize_logits));
  LS_RETURN_IF_ERROR(reader.Read("repetition_penalty", c.repetition_penalty));
  LS_RETURN_IF_ERROR(reader.Read("presence_penalty", c.presence_penalty));
  LS_RETURN_IF_ERROR(reader.Read("frequency_penalty", c.frequency_penalty));
  LS_RETURN_IF_ERROR(reader.Read("no_repeat_ngram_size", c.no_repeat_ngram_size));
  LS_RETURN_IF_ERROR(reader.Read("min_length", c.min_length));
  LS_RETURN_IF_ERROR(reader.Read("min_new_tokens", c.min_new_tokens));
  LS_RETURN_IF_ERROR(reader.Read("forced_eos_token_id", c.forced_eos_token_id));
  LS_RETURN_IF_ERROR(reader.Read("remove_invalid_values", c.remove_invalid_values));
  LS_RETURN_IF_ERROR(reader.Read("suppress_tokens", c.suppress_tokens));
  LS_RETURN_IF_ERROR(reader.Read("begin_suppress_tokens", c.begin_suppress_tokens));
  LS_RETURN_IF_ERROR(ReadBiases(reader, c));
  if (const Json* seed = reader.Find("seed")) {
    if (!seed->is_number_integer()) return reader.Fail("seed", "an integer", *seed);
    c.seed = seed->is_number_unsigned() ? seed->get<uint64_t>()
                                        : static_cast<uint64_t>(seed->get<int64_t>());
  }
  if (const Json* stop = reader.Find("stop_strings")) {
    const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
    if (!list.is_array()) return reader.Fail("stop_strings", "a list of strings", *stop);
    for (const Json& item : list) {
      if (!item.is_string()) return reader.Fail("stop_strings", "a list of strings", *stop);
      c.stop_strings.push_back(item.get<std::string>());
    }
  }
  if (c.do_sample && !json.contains("top_k")) c.top_k = kDefaultTopK;
  LS_RETURN_IF_ERROR(ValidateGenerationConfig(c, place));
  parsed.warnings = reader.Unread();
  return parsed;
}

Status ValidateGenerationConfig(const GenerationConfig& c, std::string_view place,
                                std::optional<int64_t> vocab_size) {
  const auto between = [&](std::string_view key, const std::optional<double>& x, double low,
                           double high, bool low_open) -> Status {
    if (!x || ((low_open ? *x > low : *x >= low) && *x <= high)) return {};
    return InputError("{}: \"{}\" is {}; it must be {} {} and at most {}", place, key, *x,
                      low_open ? "above" : "at least", low, high);
  };
  constexpr double kMost = std::numeric_limits<double>::max();
  LS_RETURN_IF_ERROR(
      between("temperature", c.do_sample ? c.temperature : std::nullopt, 0, kMost, true));
  LS_RETURN_IF_ERROR(between("top_p", c.top_p, 0, 1, false));
  LS_RETURN_IF_ERROR(between("min_p", c.min_p, 0, 1, false));
  LS_RETURN_IF_ERROR(between("typical_p", c.typical_p, 0, 1, true));
  LS_RETURN_IF_ERROR(between("epsilon_cutoff", c.epsilon_cutoff, 0, 1, false));
  LS_RETURN_IF_ERROR(between("eta_cutoff", c.eta_cutoff, 0, 1, false));
  LS_RETURN_IF_ERROR(between("repetition_penalty", c.repetition_penalty, 0, kMost, true));
  LS_RETURN_IF_ERROR(between("presence_penalty", c.presence_penalty, -kMost, kMost, false));
  LS_RETURN_IF_ERROR(between("frequency_penalty", c.frequency_penalty, -kMost, kMost, false));
  for (const auto& [key, value] :
       {std::pair{"top_k", c.top_k}, std::pair{"no_repeat_ngram_size", c.no_repeat_ngram_size},
        std::pair{"min_length", c.min_length}, std::pair{"min_new_tokens", c.min_new_tokens},
        std::pair{"max_length", c.max_length}, std::pair{"max_new_tokens", c.max_new_tokens}})
    if (value && *value < 0) return InputError("{}: \"{}\" is {}, below 0", place, key, *value);
  if (c.exponential_decay_length_penalty && !(c.exponential_decay_length_penalty->second > 0))
    return InputError(
        "{}: the factor of \"exponential_decay_length_penalty\" is {}; it must be above 0", place,
        c.exponential_decay_length_penalty->second);
  for (const auto& [ids, bias] : c.sequence_bias)
    if (ids.empty() || std::isnan(bias))
      return InputError("{}: \"sequence_bias\" holds an empty list of ids or a NaN", place);
  for (const auto& ids : c.bad_words_ids)
    if (ids.empty()) return InputError("{}: \"bad_words_ids\" holds an empty list", place);
  for (const std::string& stop : c.stop_strings)
    if (stop.empty()) return InputError("{}: a stop string is empty", place);
  if (!vocab_size) return {};

  const auto below = [&](std::string_view key, int32_t id) -> Status {
    if (id >= 0 && id < *vocab_size) return {};
    return InputError("{}: \"{}\" names the token {} but the vocabulary has {}", place, key, id,
                      *vocab_size);
  };
  for (const auto& [key, ids] : {std::pair{"eos_token_id", &c.eos_token_id},
                                 std::pair{"forced_eos_token_id", &c.forced_eos_token_id},
                                 std::pair{"suppress_tokens", &c.suppress_tokens},
                                 std::pair{"begin_suppress_tokens", &c.begin_suppress_tokens}})
    for (const int32_t id : *ids) LS_RETURN_IF_ERROR(below(key, id));
  for (const auto& [id, bias] : c.logit_bias) LS_RETURN_IF_ERROR(below("logit_bias", id));
  for (const auto& [ids, bias] : c.sequence_bias)
    for (const int32_t id : ids) LS_RETURN_IF_ERROR(below("sequence_bias", id));
  for (const auto& ids : c.bad_words_ids)
    for (const int32_t id : ids) LS_RETURN_IF_ERROR(below("bad_words_ids", id));
  return {};
}

Json GenerationConfig::ToJson() const {
  Json out = Json::object();
  const auto bias_json = [](double bias) -> Json {
    return std::isinf(bias) && bias < 0 ? Json("-inf") : Json(bias);
  };
  const auto put = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  const auto put_list = [&](const char* key, const auto& list) {
    if (!list.empty()) out[key] = list;
  };
  out["do_sample"] = do_sample;
  put_list("eos_token_id", eos_token_id);
  put("max_new_tokens", max_new_tokens);
  put("max_length", max_length);
  put_list("stop_strings", stop_strings);
  if (do_sample) {
    put("temperature", temperature);
    // Absent here is off; absent in a file is 50. Written out, the two agree.
    out["top_k"] = top_k.value_or(0);
    put("top_p", top_p);
    put("min_p", min_p);
    put("typical_p", typical_p);
    put("epsilon_cutoff", epsilon_cutoff);
    put("eta_cutoff", eta_cutoff);
    put("seed", seed);
  }
  if (renormalize_logits) out["renormalize_logits"] = true;
  for (const auto& [ids, bias] : sequence_bias)
    out["sequence_bias"].push_back(Json::array({Json(ids), bias_json(bias)}));
  for (const auto& [id, bias] : logit_bias) out["logit_bias"][std::to_string(id)] = bias_json(bias);
  put("repetition_penalty", repetition_penalty);
  put("presence_penalty", presence_penalty);
  put("frequency_penalty", frequency_penalty);
  put("no_repeat_ngram_size", no_repeat_ngram_size);
  put_list("bad_words_ids", bad_words_ids);
  put("min_length", min_length);
  put("min_new_tokens", min_new_tokens);
  put_list("forced_eos_token_id", forced_eos_token_id);
  if (remove_invalid_values) out["remove_invalid_values"] = true;
  if (exponential_decay_length_penalty)
    out["exponential_decay_length_penalty"] = Json::array(
        {exponential_decay_length_penalty->first, exponential_decay_length_penalty->second});
  put_list("suppress_tokens", suppress_tokens);
  put_list("begin_suppress_tokens", begin_suppress_tokens);
  return out;
}

}  // namespace lockstep

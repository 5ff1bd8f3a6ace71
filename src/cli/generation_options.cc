#include "cli/generation_options.h"

#include <charconv>
#include <limits>
#include <random>

#include "cli/options.h"
#include "formats/describe.h"

namespace lockstep {
namespace {

constexpr double kMost = 1e6;
constexpr int64_t kMany = 1'000'000'000;

// "ID=BIAS", where a bias may be -inf.
Result<std::pair<std::string, Json>> ParseBias(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string id = text.substr(0, equals);
  const std::string bias = equals == std::string::npos ? "" : text.substr(equals + 1);
  int32_t token = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token);
  if (error == std::errc{} && end == id.data() + id.size() && token >= 0) {
    if (bias == "-inf") return std::pair{std::to_string(token), Json("-inf")};
    double value = 0;
    const auto [rest, bad] = std::from_chars(bias.data(), bias.data() + bias.size(), value);
    if (bad == std::errc{} && rest == bias.data() + bias.size() && std::abs(value) <= kMost)
      return std::pair{std::to_string(token), Json(value)};
  }
  return UsageError("--logit-bias: expected ID=NUMBER or ID=-inf, found {}", Quoted(text));
}

// Of a text that a validator has accepted.
template <typename T>
T NumberOf(const std::string& text) {
  T value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<ParsedGenerationConfig> ParseAndCheck(const Json& json, const Model& model,
                                             std::string_view place) {
  LS_TRY(ParsedGenerationConfig parsed, ParseGenerationConfig(json, place));
  LS_RETURN_IF_ERROR(
      ValidateGenerationConfig(parsed.config, place, model.spec.embedding.vocab_size));
  return parsed;
}

uint64_t RandomSeed() {
  std::random_device device;
  // Short enough to be typed again.
  return device();
}

}  // namespace

void GenerationOptions::AddTo(CLI::App& verb) {
  const auto add = [&](const char* name, const char* key, CLI::Validator check, bool whole,
                       const char* description) {
    // "-n,--max-new-tokens" -> "--max-new-tokens"
    const std::string_view names = name;
    const size_t dashes = names.find("--");
    const std::string flag(names.substr(dashes, names.find(',', dashes) - dashes));
    verb.add_option_function<std::string>(
            name,
            [this, flag, key = std::string(key), whole](const std::string& text) {
              overrides_.push_back(
                  {flag + " " + text, key,
                   whole ? Json(NumberOf<int64_t>(text)) : Json(NumberOf<double>(text))});
            },
            description)
        ->check(std::move(check))
        ->group("Choosing tokens (over generation_config.json)")
        ->type_name("N");
  };
  const auto add_whole = [&](const char* name, const char* key, int64_t lowest, int64_t highest,
                             const char* description) {
    add(name, key, WholeNumber(lowest, highest), true, description);
  };
  const auto add_real = [&](const char* name, const char* key, double lowest, double highest,
                            const char* description) {
    add(name, key, RealNumber(lowest, highest), false, description);
  };
  add_whole("-n,--max-new-tokens", "max_new_tokens", 0, kMany,
            "End after so many tokens (default 512)");
  add_whole("--min-new-tokens", "min_new_tokens", 0, kMany, "Do not end before so many");
  add_real("--temperature,-t", "temperature", 0, kMost,
           "Sample; logits are divided by it (0: greedy)");
  add_whole("--top-k", "top_k", 0, kMany, "Sample among the k best (0: all)");
  add_real("--top-p", "top_p", 0, 1, "Sample among the best that hold this probability");
  add_real("--min-p", "min_p", 0, 1, "Sample among those above this share of the best");
  add_real("--typical-p", "typical_p", 1e-9, 1, "Sample among the most typical");
  add_real("--repetition-penalty", "repetition_penalty", 1e-9, kMost,
           "Divide (multiply, if negative) logits of tokens seen, the prompt's too");
  add_real("--presence-penalty", "presence_penalty", -kMost, kMost,
           "Subtract from logits of tokens in the answer");
  add_real("--frequency-penalty", "frequency_penalty", -kMost, kMost,
           "Subtract for each time a token is in the answer");
  add_whole("--no-repeat-ngram", "no_repeat_ngram_size", 0, kMany,
            "Never repeat so many tokens in a row");
  add_whole("--seed", "seed", 0, std::numeric_limits<int64_t>::max(),
            "The same seed gives the same text");
  const char* group = "Choosing tokens (over generation_config.json)";
  verb.add_option("--logit-bias", biases_,
                  "Add to a token's logit, ID=NUMBER or ID=-inf; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->group(group)
      ->type_name("ID=N");
  verb.add_option("--stop", stops_, "End before this text; repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->group(group)
      ->type_name("TEXT");
  auto* sample =
      verb.add_flag("--sample", sample_, "Sample, whatever generation_config says")->group(group);
  verb.add_flag("--greedy", greedy_,
                "Always the largest logit: nothing of generation_config but its end ids")
      ->excludes(sample)
      ->group(group);
}

std::optional<Error> GenerationOptions::FlagAtFault(const Model& model) const {
  const auto fault = [&](const std::string& flag, const Json& json) -> std::optional<Error> {
    const auto parsed = ParseAndCheck(json, model, flag);
    if (parsed) return std::nullopt;
    return Error{ErrorCode::kUsage, parsed.error().message};
  };
  for (const auto& [flag, key, value] : overrides_)
    if (key != "temperature" || value != 0) {  // 0 stands for greedy
      Json json = {{"do_sample", true}};
      json[key] = value;
      if (auto error = fault(flag, json)) return error;
    }
  for (const std::string& text : biases_)
    if (const auto bias = ParseBias(text)) {
      Json json = Json::object();
      json["logit_bias"][bias->first] = bias->second;
      if (auto error = fault("--logit-bias " + text, json)) return error;
    }
  return std::nullopt;
}

Result<ParsedGenerationConfig> GenerationOptions::InForce(const Model& model) const {
  Json json = Json::object();
  const Json& file = model.checkpoint.generation_config;
  if (file.is_object()) {
    if (!greedy_)
      json = file;
    else if (file.contains("eos_token_id"))
      json["eos_token_id"] = file["eos_token_id"];
  }
  if (!json.contains("eos_token_id") || json["eos_token_id"].is_null()) {
    json.erase("eos_token_id");
    if (!model.spec.tokens.eos.empty()) json["eos_token_id"] = model.spec.tokens.eos;
  }
  bool samples = sample_;
  for (const auto& [flag, key, value] : overrides_) {
    json[key] = value;
    if (key == "temperature" && json[key] == 0) {
      json.erase("temperature");
      json["do_sample"] = false;
      samples = false;
      continue;
    }
    samples |= key == "temperature" || key == "top_k" || key == "top_p" || key == "min_p" ||
               key == "typical_p";
    if (key == "max_new_tokens") json.erase("max_length");
  }
  if (samples && !greedy_) json["do_sample"] = true;
  for (const std::string& text : biases_) {
    LS_TRY(const auto bias, ParseBias(text));
    json["logit_bias"][bias.first] = bias.second;
  }
  for (const std::string& stop : stops_) {
    if (stop.empty()) return UsageError("--stop: expected a text, found an empty one");
    if (json.contains("stop_strings") && json["stop_strings"].is_string())
      json["stop_strings"] = Json::array({json["stop_strings"]});
    json["stop_strings"].push_back(stop);
  }
  if (!json.contains("max_new_tokens") && !json.contains("max_length"))
    json["max_new_tokens"] = kDefaultMaxNewTokens;
  Result<ParsedGenerationConfig> parsed = ParseAndCheck(json, model, "generation_config");
  if (!parsed) {
    if (auto fault = FlagAtFault(model)) return tl::unexpected(*std::move(fault));
    return parsed;
  }
  if (parsed->config.do_sample && !parsed->config.seed) parsed->config.seed = RandomSeed();
  return parsed;
}

}  // namespace lockstep

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

uint64_t RandomSeed() {
  std::random_device device;
  // Short enough to be typed again.
  return device();
}

}  // namespace

void GenerationOptions::AddTo(CLI::App& verb) {
  const auto add = [&](const char* name, const char* key, CLI::Validator check,
                       const char* description) {
    verb.add_option_function<std::string>(
            name,
            [this, key = std::string(key)](const std::string& value) {
              overrides_.emplace_back(key, value);
            },
            description)
        ->check(std::move(check))
        ->group("Choosing tokens (over generation_config.json)")
        ->type_name("N");
  };
  add("-n,--max-new-tokens", "max_new_tokens", WholeNumber(0, kMany),
      "End after so many tokens (default 512)");
  add("--min-new-tokens", "min_new_tokens", WholeNumber(0, kMany), "Do not end before so many");
  add("--temperature,-t", "temperature", RealNumber(0, kMost),
      "Sample; logits are divided by it (0: greedy)");
  add("--top-k", "top_k", WholeNumber(0, kMany), "Sample among the k best (0: all)");
  add("--top-p", "top_p", RealNumber(0, 1), "Sample among the best that hold this probability");
  add("--min-p", "min_p", RealNumber(0, 1), "Sample among those above this share of the best");
  add("--typical-p", "typical_p", RealNumber(1e-9, 1), "Sample among the most typical");
  add("--repetition-penalty", "repetition_penalty", RealNumber(1e-9, kMost),
      "Divide (multiply, if negative) logits of tokens seen, the prompt's too");
  add("--presence-penalty", "presence_penalty", RealNumber(-kMost, kMost),
      "Subtract from logits of tokens in the answer");
  add("--frequency-penalty", "frequency_penalty", RealNumber(-kMost, kMost),
      "Subtract for each time a token is in the answer");
  add("--no-repeat-ngram", "no_repeat_ngram_size", WholeNumber(0, kMany),
      "Never repeat so many tokens in a row");
  add("--seed", "seed", WholeNumber(0, std::numeric_limits<int64_t>::max()),
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
  for (const auto& [key, text] : overrides_) {
    LS_TRY(json[key], ParseJson(text, key));
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
  LS_TRY(ParsedGenerationConfig parsed, ParseGenerationConfig(json, "generation_config"));
  LS_RETURN_IF_ERROR(ValidateGenerationConfig(parsed.config, "generation_config",
                                              model.spec.embedding.vocab_size));
  if (parsed.config.do_sample && !parsed.config.seed) parsed.config.seed = RandomSeed();
  return parsed;
}

}  // namespace lockstep

#include "tokenizer/special_tokens.h"

#include "base/json.h"

namespace lockstep {
namespace {

// A string, or an object with "content"; absent for null.
Result<std::optional<std::string>> TokenOf(const Json& value, std::string_view key,
                                           std::string_view place) {
  if (value.is_null()) return std::optional<std::string>();
  if (value.is_string()) return std::optional(value.get<std::string>());
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return std::optional(value["content"].get<std::string>());
  }
  return InputError("{}: {} is neither a string nor an object with \"content\"", place, key);
}

Status ReadTemplates(const Json& value, std::string_view place, TokenizerConfig& config) {
  if (value.is_null()) return {};
  if (value.is_string()) {
    config.chat_templates.emplace_back("default", value.get<std::string>());
    return {};
  }
  if (!value.is_array())
    return InputError("{}: chat_template is neither a string nor a list of templates", place);
  for (const Json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return InputError("{}: chat_template[{}] has no \"name\" and \"template\"", place,
                        config.chat_templates.size());
    }
    config.chat_templates.emplace_back(entry["name"].get<std::string>(),
                                       entry["template"].get<std::string>());
  }
  return {};
}

}  // namespace

std::optional<std::string_view> TokenizerConfig::SpecialToken(std::string_view key) const {
  for (const auto& [name, text] : special_tokens) {
    if (name == key) return text;
  }
  return std::nullopt;
}

Result<TokenizerConfig> ParseTokenizerConfig(std::string_view json, std::string_view place) {
  LS_TRY(const Json root, ParseJson(json, place));
  if (!root.is_object())
    return InputError("{}: expected an object with keys such as \"bos_token\"", place);
  TokenizerConfig config;
  for (const auto& [key, value] : root.items()) {
    if (key == "add_bos_token" || key == "add_eos_token") {
      if (value.is_null()) continue;
      if (!value.is_boolean()) return InputError("{}: {} is neither true nor false", place, key);
      (key == "add_bos_token" ? config.add_bos_token : config.add_eos_token) = value.get<bool>();
    } else if (key == "chat_template") {
      LS_RETURN_IF_ERROR(ReadTemplates(value, place, config));
    } else if (key == "tokenizer_class" && value.is_string()) {
      config.tokenizer_class = value.get<std::string>();
    } else if (key.ends_with("_token") &&
               (value.is_string() || value.is_object() || value.is_null())) {
      LS_TRY(const auto token, TokenOf(value, key, place));
      if (token) config.special_tokens.emplace_back(key, *token);
    }
  }
  return config;
}

}  // namespace lockstep

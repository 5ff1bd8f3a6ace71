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

Status ReadFurtherTokens(std::string_view key, const Json& value, std::string_view place,
                         TokenizerConfig& config) {
  if (value.is_array()) {
    for (const Json& entry : value) {
      LS_TRY(auto token, TokenOf(entry, key, place));
      if (token) config.additional_special_tokens.push_back(*std::move(token));
    }
  } else if (value.is_object()) {
    for (const auto& [name, entry] : value.items()) {
      LS_TRY(auto token, TokenOf(entry, name, place));
      if (token) config.special_tokens.emplace_back(name, *std::move(token));
    }
  }
  return {};
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

std::optional<std::string> TokenizerConfig::DefaultTemplate() const {
  for (const auto& [name, text] : chat_templates)
    if (name == "default") return text;
  return std::nullopt;
}

Result<TokenizerConfig> ParseTokenizerConfig(std::string_view json, std::string_view place) {
  LS_TRY(const Json root, ParseJson(json, place));
  if (!root.is_object())
    return InputError("{}: expected an object with keys such as \"bos_token\"", place);
  TokenizerConfig config;
  for (const auto& [key, value] : root.items()) {
    if (key == "chat_template") {
      LS_RETURN_IF_ERROR(ReadTemplates(value, place, config));
    } else if (key == "additional_special_tokens" || key == "extra_special_tokens") {
      LS_RETURN_IF_ERROR(ReadFurtherTokens(key, value, place, config));
    } else if (key.ends_with("_token") &&
               (value.is_string() || value.is_object() || value.is_null())) {
      LS_TRY(const auto token, TokenOf(value, key, place));
      if (token) config.special_tokens.emplace_back(key, *token);
    }
  }
  return config;
}

}  // namespace lockstep

// What tokenizer_config.json says beside the tokenizer: the names of the special tokens (template
// variables such as bos_token) and the chat template.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {

struct TokenizerConfig {
  // In the order of the file: "bos_token" -> "<s>", every key that ends in _token and holds a
  // string or an object with "content". Null values are left out.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::optional<std::string_view> SpecialToken(std::string_view key) const;

  // (name, template); a single template is named "default".
  std::vector<std::pair<std::string, std::string>> chat_templates;

  std::optional<bool> add_bos_token, add_eos_token;
  std::string tokenizer_class;  // "" when absent
};

Result<TokenizerConfig> ParseTokenizerConfig(std::string_view json, std::string_view place);

}  // namespace lockstep

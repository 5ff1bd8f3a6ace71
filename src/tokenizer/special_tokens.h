// What tokenizer_config.json says beside the tokenizer: the names of the special tokens (template
// variables such as bos_token) and the chat template. special_tokens_map.json and
// chat_template.json have the same keys. Read by model/load_text_model.cc.
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
  // string or an object with "content", and the entries of an extra_special_tokens that is an
  // object. Null values are left out.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // The list additional_special_tokens, which newer files call extra_special_tokens.
  std::vector<std::string> additional_special_tokens;

  // (name, template); a single template is named "default".
  std::vector<std::pair<std::string, std::string>> chat_templates;
  std::optional<std::string> DefaultTemplate() const;
};

Result<TokenizerConfig> ParseTokenizerConfig(std::string_view json, std::string_view place);

}  // namespace lockstep

// TextModel: the text side of a checkpoint: its tokenizer, its chat template and the texts of its
// special tokens. Loaded apart from the weights: a large vocabulary takes tens of milliseconds, and
// what needs no text does not ask for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "formats/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

struct TextModel {
  std::optional<Tokenizer> tokenizer;
  std::string tokenizer_source;  // "tokenizer.json", "tokenizer.ggml.* (gpt2, smollm)"; empty: none
  std::optional<std::string> chat_template;
  Json special_tokens = Json::object();  // bos_token, eos_token, ... as text, for templates
  std::vector<std::string> notes;        // sentences a person should know
};

// A checkpoint without a tokenizer gives an empty TextModel.
Result<TextModel> LoadTextModel(const Checkpoint& checkpoint);

}  // namespace lockstep

// Model: a checkpoint that is understood: its spec, its weights where they lie, its tokenizer and
// the settings it asks to be run with. Made by LoadModel; read by everything that computes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "model/weights.h"
#include "spec/model_spec.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

// The text side of a model.
struct TextModel {
  std::optional<Tokenizer> tokenizer;
  std::string tokenizer_source;  // "tokenizer.json", "tokenizer.ggml.* (gpt2, smollm)"; empty: none
  std::optional<std::string> chat_template;
  Json special_tokens = Json::object();  // bos_token, eos_token, ... as text, for templates
};

struct Model {
  Checkpoint checkpoint;
  ModelSpec spec;
  Weights weights;
  // What a person should know and no error: keys nothing read, tensors nothing uses, a vocabulary
  // that does not fit the embedding. Sentences.
  std::vector<std::string> notes;
};

// formats -> arch -> validate -> bind. Touches no weight.
Result<Model> LoadModel(const std::filesystem::path& path);

// The tokenizer and the chat template of a checkpoint; large vocabularies take tens of
// milliseconds, so what needs no text does not ask. A checkpoint without a tokenizer gives an empty
// TextModel.
Result<TextModel> LoadTextModel(const Checkpoint& checkpoint);

}  // namespace lockstep

// Model: a checkpoint that is understood: its spec, its weights where they lie, its tokenizer and
// the settings it asks to be run with. Made by LoadModel; read by everything that computes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "model/weights.h"
#include "spec/model_spec.h"

namespace lockstep {

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

}  // namespace lockstep

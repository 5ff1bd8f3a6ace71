// Model: a checkpoint that is understood: its spec and its weights where they lie. Made by
// LoadModel from formats/ and arch/; read by everything that computes. The spec is valid
// (spec/validate.h) and every weight that it needs is bound.
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
  // What a person should know and no error: keys that nothing read, tensors that nothing uses.
  // Sentences.
  std::vector<std::string> notes;
};

// arch -> validate -> bind. Touches no weight.
Result<Model> LoadModel(Checkpoint checkpoint);
// The same of the checkpoint that lies at `path`.
Result<Model> LoadModel(const std::filesystem::path& path);

}  // namespace lockstep

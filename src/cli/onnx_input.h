// What `lockstep export` reads besides checkpoints: a folder with an ONNX graph, as a Model whose
// facts come from the record of the export that made it (lockstep.json) or from a config.json.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "formats/onnx.h"
#include "model/model.h"

namespace lockstep {

struct OnnxInput {
  Model model;  // keeps the graph alive
  std::shared_ptr<const OnnxModel> onnx;
  const TensorType* before = nullptr;  // what the configuration says that the weights are
};

// `config`: config.json or the folder that holds it; empty: what lockstep.json keeps.
Result<OnnxInput> OpenOnnxInput(const std::filesystem::path& folder,
                                const std::filesystem::path& config);

}  // namespace lockstep

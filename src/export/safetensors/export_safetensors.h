// A model as a Hugging Face folder: config.json, generation_config.json, weights in safetensors
// (in shards beyond a size), tokenizer and chat template (docs/export_gguf.md).
#pragma once

#include <filesystem>

#include "base/error.h"
#include "export/checkpoint_export.h"
#include "model/model.h"

namespace lockstep {

// Writes the folder `out` complete or not at all.
Result<CheckpointExportReport> ExportSafetensors(const Model& model,
                                                 const std::filesystem::path& out,
                                                 const CheckpointExportOptions& options);

}  // namespace lockstep

// A model as a GGUF file that llama.cpp loads (docs/export_gguf.md).
#pragma once

#include <filesystem>

#include "base/error.h"
#include "export/checkpoint_export.h"
#include "model/model.h"

namespace lockstep {

// Writes `out` complete or not at all.
Result<CheckpointExportReport> ExportGguf(const Model& model, const std::filesystem::path& out,
                                          const CheckpointExportOptions& options);

}  // namespace lockstep

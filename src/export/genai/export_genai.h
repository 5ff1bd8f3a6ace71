// ExportGenAi: a model as a folder for ONNX Runtime GenAI (and for plain ONNX Runtime): model.onnx,
// model.onnx.data, genai_config.json and the tokenizer's files.
#pragma once

#include "export/export.h"

namespace lockstep {

// Writes into `folder`, which exists and is empty. Peak memory: the largest matrix as fp32.
// `check_room` is asked before the first byte of weights.
Result<ExportReport> ExportGenAi(const Model& model, const ExportOptions& options,
                                 const std::filesystem::path& folder,
                                 const std::function<Status(uint64_t bytes)>& check_room,
                                 ThreadPool& pool, const ExportProgress& progress);

}  // namespace lockstep

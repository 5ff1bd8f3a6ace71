// ReadAgain: opens a checkpoint that was just written and compares it with the model it was made
// of: every fact, every weight.
#pragma once

#include <filesystem>

#include "base/thread_pool.h"
#include "export/checkpoint_export.h"
#include "model/model.h"

namespace lockstep {

// `facts` are what the file must state. Fills in exact_weights, rounded_weights, relative_error.
Status ReadAgain(const Model& model, const ModelSpec& facts, const std::filesystem::path& written,
                 ThreadPool& pool, CheckpointExportReport& report);

}  // namespace lockstep

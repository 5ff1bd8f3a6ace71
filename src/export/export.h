// What every target of `lockstep export` takes and gives. A target is a function that writes a
// model into an empty folder; it reads the spec and the weights and never an architecture's name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "export/progress.h"
#include "model/model.h"

namespace lockstep {

struct ExportOptions {
  std::string precision = "fp32";
  std::string execution_provider = "cpu";
};

struct ExportReport {
  uint64_t bytes = 0;  // of weights
  // Sentences: what could not be written as one fused operator, what the target has no place for.
  std::vector<std::string> notes;
};

// lockstep.json: what was exported, of what, and how. The same model and options give the same
// text.
Json ExportManifest(const Model& model, std::string_view target, const ExportOptions& options,
                    const ExportReport& report);

}  // namespace lockstep

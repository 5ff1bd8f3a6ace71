// QuantizationReport: what fewer bits do to a model: the error of each layer's weights, and on a
// text that nothing was chosen by the KL of the output, perplexity and greedy agreement, with
// standard errors; beside a rival's file, if there is one. Both are read by the reference on their
// own codes: what a runtime's own rounding of activations adds is not in it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "export/progress.h"
#include "measure/perplexity.h"
#include "model/model.h"

namespace lockstep {

struct QuantizedSide {
  std::string path;
  uint64_t bytes = 0;                 // of its files
  std::vector<double> layer_errors;   // root of the squared error over the squares, by layer
  double table_error = 0, error = 0;  // of the embedding and the head; of all
  TextScore score;
};

struct QuantizationReport {
  uint64_t bytes = 0;  // of the model's own files
  int64_t tokens = 0;  // that count
  QuantizedSide model;
  std::optional<QuantizedSide> rival;
};

// `quantized` and `rival` ("": none): an ONNX folder, or a checkpoint. Text "": a built-in one.
Result<QuantizationReport> ReportQuantization(const Model& model,
                                              const std::filesystem::path& quantized,
                                              const std::filesystem::path& rival,
                                              std::string_view text, ThreadPool& pool,
                                              const ExportProgress& progress);

std::string QuantizationText(const QuantizationReport& report);
Json ToJson(const QuantizationReport& report);

}  // namespace lockstep

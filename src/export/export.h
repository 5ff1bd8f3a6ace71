// What every target of `lockstep export` takes and gives. A target is a function that writes a
// model into an empty folder; it reads the spec and the weights and never an architecture's name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "export/calibration.h"
#include "export/progress.h"
#include "model/model.h"

namespace lockstep {

// How a block's scale and codes are chosen.
enum class CodeMethod : uint8_t {
  kNearest,       // plain rounding
  kSquaredError,  // a search for the scale of the least squared error
  kActivations,   // in it columns count by the mean squares of what they multiply
  kFeedback,      // and each column makes good the errors before it (quant/error_feedback.h)
};
struct CodeMethodInfo {
  CodeMethod method;
  std::string_view name, description;
};
std::span<const CodeMethodInfo> CodeMethods();
inline bool IsCalibrated(CodeMethod method) { return method >= CodeMethod::kActivations; }

// Of one matrix, in place of the whole export's.
struct CodeChoice {
  int bits = 4;
  int64_t block = 32;
  bool operator==(const CodeChoice&) const = default;
};
// By the first of an operator's matrices. Experts follow their policy, whatever it says.
using CodePlan = std::map<MatrixKey, CodeChoice>;

// How codes are chosen, where the precision has codes.
struct CodeOptions {
  int64_t block = 32;       // weights under one scale: 16, 32, ..., 256
  bool asymmetric = false;  // each block has a zero point of its own
  CodeMethod method = CodeMethod::kFeedback;
  // MatMulNBits: 4 lets the CPU round activations to int8; absent: 4 on the CPU, 0 elsewhere.
  std::optional<int64_t> accuracy_level;
};

struct ExportOptions {
  std::string precision = "fp32";  // a row of precision.h
  std::string execution_provider = "cpu";
  CodeOptions codes;
  // Not owned; nullptr: nothing is known of what matrices multiply.
  Calibration* calibration = nullptr;
  const CodePlan* plan = nullptr;  // not owned; nullptr: all matrices alike
};

struct ExportReport {
  uint64_t bytes = 0;  // of weights
  // Sentences: what could not be written as one fused operator, what the target has no place for.
  std::vector<std::string> notes;
};

// In the folder that is written: what was exported, of what, and how. The same model and options
// give the same text.
inline constexpr std::string_view kManifestName = "lockstep.json";
Json ExportManifest(const Model& model, std::string_view target, const ExportOptions& options,
                    const ExportReport& report);

}  // namespace lockstep

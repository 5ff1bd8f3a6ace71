// An audit as text and as JSON, for the verbs that print one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "audit/audit.h"
#include "base/json.h"

namespace lockstep {

struct AuditedPair {
  Model reference;
  std::optional<OnnxModel> onnx;  // one of the two
  std::optional<Model> checkpoint;
  AuditReport report;
};

// The candidate is an ONNX file or folder, or a checkpoint, by what lies there.
Result<AuditedPair> AuditPaths(const std::filesystem::path& reference,
                               const std::filesystem::path& candidate);

std::string AuditText(const AuditReport& report, bool verbose);
Json AuditJson(const AuditReport& report);

}  // namespace lockstep

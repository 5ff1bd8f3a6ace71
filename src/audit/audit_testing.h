// What the tests of the audit share: a small export with its checkpoint, and patches that put
// faults into copies of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.h"
#include "audit/repair.h"
#include "base/testing.h"
#include "formats/onnx_write.h"

namespace lockstep {

namespace fs = std::filesystem;

inline const fs::path kGemma = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/gemma2";

struct Pair {
  Model reference;
  OnnxModel candidate;
  AuditReport report;
};

inline Pair Look(const fs::path& reference, const fs::path& candidate) {
  Pair pair{Must(LoadModel(reference)), Must(OnnxModel::Open(candidate)), {}};
  pair.report = Must(Audit(pair.reference, pair.candidate));
  return pair;
}

inline std::vector<std::string> Wheres(const AuditReport& report) {
  std::vector<std::string> out;
  for (const Finding& finding : report.findings) out.push_back(finding.where);
  return out;
}

inline std::string All(const AuditReport& report) {
  std::string out;
  for (const Finding& finding : report.findings) out += finding.sentence + "\n";
  return out;
}

inline int64_t CountOf(const AuditReport& report, WeightState state) {
  return std::count_if(report.weights.begin(), report.weights.end(),
                       [&](const auto& w) { return w.second.state == state; });
}

inline size_t NodeOf(const OnnxModel& model, std::string_view op, size_t nth = 0) {
  for (const OnnxNode& node : model.nodes())
    if (node.op_type == op && nth-- == 0) return node.index;
  ADD_FAILURE() << op;
  return 0;
}

inline const OnnxTensor& MatrixAt(const OnnxModel& model, size_t node) {
  return *model.Tensor(model.nodes()[node].Input(1));
}

inline void Multiply(const OnnxModel& model, size_t node, double factor, OnnxPatch& patch) {
  const OnnxTensor& tensor = MatrixAt(model, node);
  auto numbers = *ReadDoubles(tensor);
  for (double& x : numbers) x *= factor;
  patch.tensors.push_back({.name = tensor.name, .bytes = *EncodeNumbers(numbers, tensor.type)});
}

// The export of Gemma 2 with all that its builder did wrong mended, and then changed.
class Faulty {
 public:
  explicit Faulty(void (*inject)(const OnnxModel& model, OnnxPatch& patch)) {
    const Pair original = Look(kGemma / "checkpoint", kGemma / "genai");
    const RepairPlan healing = Must(PlanRepair(original.candidate, original.report));
    EXPECT_TRUE(WriteRepair(original.candidate, healing, scratch_ / "healthy"));
    const OnnxModel healthy = Must(OnnxModel::Open(scratch_ / "healthy"));
    OnnxPatch patch;
    inject(healthy, patch);
    const Status made = WriteOnnx(healthy, patch, scratch_ / "faulty");
    EXPECT_TRUE(made) << made.error().message;
  }

  Pair LookAt() const { return Look(kGemma / "checkpoint", scratch_ / "faulty"); }

  // Audited again after all that can be mended was.
  AuditReport Mended(const Pair& pair) const {
    const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
    const Status written = WriteRepair(pair.candidate, plan, scratch_ / "mended");
    EXPECT_TRUE(written) << written.error().message;
    return Look(kGemma / "checkpoint", scratch_ / "mended").report;
  }

 private:
  TestFolder scratch_;
};

}  // namespace lockstep

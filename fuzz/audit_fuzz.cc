// Any bytes as an export of a small checkpoint: a report or an error, and a repair that is planned
// leaves a model that can be read, and audited, again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "audit/audit.h"
#include "audit/repair.h"
#include "audit/taps_of.h"
#include "model/model.h"

namespace {

const lockstep::Model& Reference() {
  static const auto* const model = [] {
    auto loaded = lockstep::LoadModel(LOCKSTEP_SOURCE_DIR "/tests/golden/onnx/gemma2/checkpoint");
    if (!loaded) {
      std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
      std::abort();
    }
    return new lockstep::Model(*std::move(loaded));
  }();
  return *model;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto model = lockstep::OnnxModel::Parse(bytes, "fuzz.onnx");
  if (!model) return 0;
  const auto report = lockstep::Audit(Reference(), *model);
  if (!report) return 0;
  lockstep::TapsOf(*model, report->decoder);
  for (const lockstep::Finding& finding : report->findings) {
    if (finding.sentence.find('\n') != std::string::npos) std::abort();
    if (finding.sentence.find("by nan") != std::string::npos) std::abort();
  }
  const auto plan = lockstep::PlanRepair(*model, *report);
  if (!plan || plan->changes.size() + plan->left.size() > report->findings.size()) std::abort();
  const auto patched = lockstep::PatchedOnnx(*model, plan->patch);
  if (!patched) return 0;
  const auto again = lockstep::OnnxModel::Parse(std::as_bytes(std::span(*patched)), "patched.onnx");
  if (again && !lockstep::Audit(Reference(), *again)) std::abort();
  return 0;
}

// Examine: all that is asked about a reference and a candidate: what can be told without a forward
// pass (audit/), whether their logits agree (verify/), whether fewer bits in the weights are all
// that is between them, and if not, why (verify/diagnose.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "base/thread_pool.h"
#include "subjects/reference_subject.h"
#include "verify/diagnose.h"
#include "verify/verify.h"

namespace lockstep {

struct ExamineOptions {
  VerifyOptions verify;
  DiagnoseOptions diagnose;
  bool audits = true;     // where the candidate's weights can be read
  bool diagnoses = true;  // where the two differ
};

struct Examination {
  Verification verification;
  std::optional<AuditReport> audit;
  std::optional<Diagnosis> diagnosis;
  // What the reference was before it was edited, where that is not the checkpoint alone: "with the
  // candidate's 4-bit weights". Empty: nothing.
  std::string base;
};

// Steps that a graph with int8 activations may lie from the reference that rounds as it does: where
// a number falls between two codes, rounding of the last bit chooses (measured on exports of two
// builders' kinds; the bound is the one they are held to).
inline constexpr double kEmulatedRounding = 1e-4;

// An audit is made where `reference` is a checkpoint and `path` an ONNX model or a checkpoint, and a
// diagnosis where `reference` is a checkpoint under the reference; otherwise both are left out.
// Fails as Verify does.
Result<Examination> Examine(Subject& reference, Subject& candidate,
                            const std::filesystem::path& path, const ExamineOptions& options,
                            ThreadPool& pool, const Progress& progress);

// Why the candidate differs from `model` on `probes`, on which it is run (again).
Result<Diagnosis> DiagnoseOn(const Model& model, Subject& candidate, std::vector<Probe> probes,
                             DiagnoseOptions options, ThreadPool& pool, const Progress& progress);

// What an audit found, as guesses for a diagnosis.
std::vector<Hypothesis> HypothesesOf(const AuditReport& report);

}  // namespace lockstep

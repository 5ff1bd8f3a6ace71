// Examine: all that is asked about a reference and a candidate: what can be told without a forward
// pass (audit/), whether their logits agree (verify/), whether fewer bits in the weights are all
// that is between them, and if not, why (verify/diagnose.h).
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "base/thread_pool.h"
#include "cli/exit_code.h"
#include "cli/onnx_taps.h"
#include "cli/own_codes.h"
#include "cli/rounded_reference.h"
#include "subjects/reference_subject.h"
#include "verify/diagnose.h"
#include "verify/verify.h"

namespace lockstep {

struct ExamineOptions {
  VerifyOptions verify;
  DiagnoseOptions diagnose;
  bool audits = true;     // where the candidate's weights can be read
  bool diagnoses = true;  // where the two differ
  size_t keeps = 0;       // of how many probes the candidate's runs are kept (Examination::answers)
};

struct Examination {
  Verification verification;
  std::optional<AuditReport> audit;
  std::optional<Diagnosis> diagnosis;
  // What the reference was before it was edited, where that is not the checkpoint alone:
  // OwnCodes::Words(). Empty: nothing.
  std::string base;
  std::optional<OwnCodes> own_codes;  // of a quantized graph that differs
  // Of an export that is compared with its own record: files that are not those that were written.
  std::vector<std::string> changed;
  std::vector<PromptTrace> answers;  // the candidate's, to the first probes that it could answer
};

// `checkpoint` is what stands behind `reference`, where that is a checkpoint under the reference;
// nullptr: neither audit nor diagnosis. An audit needs a candidate that is an ONNX model or a
// checkpoint. Fails as Verify does.
Result<Examination> Examine(Subject& reference, const ReferenceSubject* checkpoint,
                            Subject& candidate, const ExamineOptions& options, ThreadPool& pool,
                            const Progress& progress);

// Of an ONNX model that ONNX Runtime refuses (`error`: operators that this machine has for other
// types alone): that it failed, and what an audit can tell. Absent where it cannot be read either.
std::optional<Examination> AuditedAlone(const Subject& reference,
                                        const ReferenceSubject& checkpoint, const std::string& name,
                                        const Error& error);

// How the verbs that compare end.
ExitCode ExitCodeOf(Verdict verdict);
// The same, but no match where the audit saw another number or fact that decides logits and that
// the prompts did not reach.
ExitCode ExitCodeOf(const Examination& examination);

// --longest N, of the probes that are derived from the model.
inline constexpr int64_t kLongestProbe = 1100;
void AddLongest(CLI::App& verb, int64_t& longest);

// Why the candidate differs from `model` on `probes`, on which it is run (again); until one of them
// shows where inside the model that begins, also with its intermediates (`inside`: the way to them;
// may be nullptr). Every evaluation rounds as the candidate does with `rounded`, which runs `model`
// (nullptr: none).
Result<Diagnosis> DiagnoseOn(const Model& model, Subject& candidate, std::vector<Probe> probes,
                             DiagnoseOptions options, OnnxTaps* inside, RoundedReference* rounded,
                             ThreadPool& pool, const Progress& progress);

// What an audit found, as guesses for a diagnosis.
std::vector<Hypothesis> HypothesesOf(const AuditReport& report);

}  // namespace lockstep

// lockstep repair: a copy of an exported folder with what the audit found mended.
#include "audit/repair.h"

#include <algorithm>
#include <memory>

#include "base/quoted.h"
#include "base/temporary_folder.h"
#include "cli/audit_text.h"
#include "cli/examine.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "cli/verification_text.h"
#include "ort/ort_runtime.h"
#include "subjects/onnx_subject.h"
#include "verify/caching_subject.h"
#include "verify/report.h"

namespace lockstep {
namespace {

struct RepairArgs {
  std::string folder, reference, out;
  bool in_place = false, json = false, unverified = false;
};

struct Repaired {
  RepairPlan plan;
  std::string where;
  bool kept = true;  // false: what was mended was further from the reference, and is gone
  AuditReport after;
  // The folder before and after against the checkpoint, where ONNX Runtime is there.
  std::optional<Verification> verified_before, verified_after;
  std::string not_verified;  // why not: a sentence
};

// Folders' logits against the checkpoint's, on the built-in prompts; the checkpoint runs once.
class FolderVerifier {
 public:
  explicit FolderVerifier(const std::filesystem::path& reference) : reference_(reference) {}

  // `diagnoses`: where they differ, why.
  Result<Examination> Examined(const std::filesystem::path& folder, bool diagnoses) {
    LS_TRY(const auto onnx, OnnxSubject::Open(folder, pool_.num_threads()));
    if (caching_ == nullptr) {
      LS_TRY(auto subject, ReferenceSubject::Open(reference_, pool_));
      checkpoint_ = subject.get();
      caching_ = std::make_unique<CachingSubject>(std::move(subject));
    }
    ExamineOptions options;
    options.verify.longest = kLongestProbe;
    options.diagnoses = diagnoses;
    ProgressLine line;
    return Examine(*caching_, checkpoint_, *onnx, options, pool_,
                   [&](std::string_view doing, int64_t done, int64_t total) {
                     line.Show(fmt::format("{}: {}", folder.string(), doing), done, total);
                     return !WasInterrupted();
                   });
  }

 private:
  std::filesystem::path reference_;
  ThreadPool pool_{ThreadCount(0)};
  std::unique_ptr<CachingSubject> caching_;
  const ReferenceSubject* checkpoint_ = nullptr;  // in `caching_`
};

// What was taken for faults was none of the model's: mending it made another model.
bool IsFurther(const Verification& before, const Verification& after) {
  if (ExitCodeOf(after.verdict) == kExitYes) return false;
  if (ExitCodeOf(before.verdict) == kExitYes || after.verdict == Verdict::kSubjectFailed)
    return before.verdict != Verdict::kSubjectFailed;
  return WorstOf(after) > WorstOf(before);
}

// A sentence for each cause that is not told yet; or where the two part, when no edit explains it.
void AddCauses(const Diagnosis& diagnosis, std::vector<std::string>& left) {
  const auto told = [&](const std::string& sentence) {
    return std::any_of(left.begin(), left.end(), [&](const std::string& one) {
      return one.find(sentence) != std::string::npos;
    });
  };
  for (const Cause& cause : diagnosis.causes) {
    const Hypothesis& hypothesis = cause.hypothesis;
    if (told(hypothesis.sentence)) continue;
    std::string is;
    for (const FieldDifference& change : cause.changes)
      is += fmt::format("{}{}: expected {}, found {}", is.empty() ? "" : ", ", change.path,
                        change.a.empty() ? "nothing" : change.a,
                        change.b.empty() ? "nothing" : change.b);
    if (is.empty()) is = ToString(hypothesis.edit);
    left.push_back(
        fmt::format("export again: {} ({}; seen by running both, and not found in the graph)",
                    hypothesis.sentence, is));
  }
  if (diagnosis.verdict != DiagnosisVerdict::kUnexplained) return;
  const auto& first = diagnosis.first;
  left.push_back(fmt::format(
      "export again: what is wrong is no edit that was tried{}",
      first && first->tap
          ? fmt::format(
                "; the two part at {}{}", TapName(first->tap->tap, first->tap->layer),
                first->operation.empty() ? "" : fmt::format(", made by {}", first->operation))
          : ""));
}

Result<Repaired> Work(const RepairArgs& args) {
  if (args.out.empty() != args.in_place) return UsageError("say either --out NEW or --in-place");
  LS_TRY(const AuditedPair pair, AuditPaths(args.reference, args.folder));
  if (!pair.onnx)
    return UsageError("{}: only an ONNX folder can be repaired; convert a checkpoint again",
                      Quoted(args.folder));
  const auto strangers =
      std::count_if(pair.report.weights.begin(), pair.report.weights.end(), [](const auto& weight) {
        return weight.second.state == WeightState::kDiffers && weight.second.correlation < 0.5;
      });
  if (2 * strangers > static_cast<int64_t>(pair.report.weights.size()))
    return InputError(
        "{}: {} of {} weights have nothing in common with those of {}: it was exported from "
        "another "
        "checkpoint, and nothing was changed",
        Quoted(args.folder), strangers, pair.report.weights.size(), Quoted(args.reference));
  Repaired out;
  LS_TRY(out.plan, PlanRepair(*pair.onnx, pair.report));
  CatchInterrupts();
  FolderVerifier verifier(args.reference);
  const auto verify = [&](const std::filesystem::path& folder,
                          std::optional<Verification>& into) -> Status {
    if (args.unverified || !out.not_verified.empty()) return {};
    auto examined = verifier.Examined(folder, false);
    if (!examined && IsInterrupted(examined.error())) return tl::unexpected(examined.error());
    if (examined)
      into = std::move(examined->verification);
    else
      out.not_verified = examined.error().message;
    return {};
  };
  // What no repair reached is to be exported again: what that is, only a diagnosis may know.
  const auto diagnose = [&](const std::filesystem::path& folder,
                            const std::optional<Verification>& verified) -> Status {
    if (!verified || verified->verdict != Verdict::kDiffers) return {};
    auto examined = verifier.Examined(folder, true);
    if (!examined && IsInterrupted(examined.error())) return tl::unexpected(examined.error());
    if (examined && examined->diagnosis) AddCauses(*examined->diagnosis, out.plan.left);
    return {};
  };
  LS_RETURN_IF_ERROR(verify(args.folder, out.verified_before));
  out.where = args.in_place ? args.folder : args.out;
  if (out.plan.empty()) {
    out.after = pair.report;
    LS_RETURN_IF_ERROR(diagnose(args.folder, out.verified_before));
    return out;
  }
  // In place only what was seen to be no further from the reference than what it replaces.
  std::optional<TemporaryFolder> trial;
  std::filesystem::path fresh = args.out;
  if (args.in_place && out.verified_before) {
    const auto beside =
        std::filesystem::absolute(std::filesystem::path(args.folder) / "..").lexically_normal();
    auto made = TemporaryFolder::Make(beside, "repaired");
    if (!made)
      return InputError("{}: no folder can be made there, where the mended one is tried: {}",
                        Quoted(beside.string()), made.error().message);
    trial.emplace(*std::move(made));
    fresh = trial->path() / "mended";
  }
  if (!fresh.empty()) LS_RETURN_IF_ERROR(WriteRepair(*pair.onnx, out.plan, fresh));
  if (fresh.empty()) LS_RETURN_IF_ERROR(RepairInPlace(*pair.onnx, out.plan));
  const std::filesystem::path& written = fresh.empty() ? pair.onnx->folder() : fresh;
  LS_TRY(const OnnxModel mended, OnnxModel::Open(written / pair.onnx->path().filename()));
  LS_TRY(out.after, Audit(pair.reference, mended));
  LS_RETURN_IF_ERROR(verify(written, out.verified_after));
  if (out.verified_before && out.verified_after &&
      IsFurther(*out.verified_before, *out.verified_after)) {
    out.kept = false;
    LS_RETURN_IF_ERROR(diagnose(args.folder, out.verified_before));
    std::error_code error;
    if (!args.in_place) std::filesystem::remove_all(args.out, error);
    return out;
  }
  LS_RETURN_IF_ERROR(diagnose(written, out.verified_after));
  if (trial) LS_RETURN_IF_ERROR(RepairInPlace(*pair.onnx, out.plan));
  return out;
}

std::string Text(const Repaired& repaired) {
  std::string out;
  if (repaired.plan.empty())
    out += "nothing to mend\n";
  else if (repaired.kept)
    out += fmt::format("written: {}\n", repaired.where);
  else
    out +=
        "nothing was written: mended so, the model is further from the reference than it was; what "
        "was taken for faults is another way of computing the same, or hides another fault\n";
  if (!repaired.plan.changes.empty()) out += repaired.kept ? "\nmended\n" : "\ntried\n";
  for (const std::string& change : repaired.plan.changes) out += fmt::format("  {}\n", change);
  if (!repaired.plan.left.empty()) out += "\nleft as it is\n";
  for (const std::string& left : repaired.plan.left) out += fmt::format("  {}\n", left);
  if (repaired.verified_before)
    out += "\nbefore\n" + VerificationText(*repaired.verified_before, false);
  if (repaired.verified_after)
    out += "\nafter\n" + VerificationText(*repaired.verified_after, false);
  if (!repaired.not_verified.empty())
    out += fmt::format("\nnot run, before or after: {}\n", repaired.not_verified);
  out += "\naudited again\n" + AuditText(repaired.after, false);
  return out;
}

int Run(const RepairArgs& args) {
  const Result<Repaired> repaired = Work(args);
  if (!repaired) return Report(repaired.error(), args.json);
  if (args.json) {
    Json json = Json::object();
    json["written"] =
        repaired->plan.empty() || !repaired->kept ? Json(nullptr) : Json(repaired->where);
    json[repaired->kept ? "mended" : "tried"] = repaired->plan.changes;
    json["left"] = repaired->plan.left;
    json["after"] = AuditJson(repaired->after);
    if (repaired->verified_before) json["verified_before"] = ToJson(*repaired->verified_before);
    if (repaired->verified_after) json["verified_after"] = ToJson(*repaired->verified_after);
    if (!repaired->not_verified.empty()) json["not_verified"] = repaired->not_verified;
    PrintJson(json);
  } else {
    Print(Text(*repaired));
  }
  const auto& verified =
      repaired->verified_after ? repaired->verified_after : repaired->verified_before;
  const bool right = repaired->kept && (!verified || ExitCodeOf(verified->verdict) == kExitYes);
  // With ONNX Runtime at hand, a folder that it cannot load is no repaired one.
  if (!repaired->not_verified.empty() && OrtRuntime::Load()) return kExitUnusable;
  return repaired->after.healthy() && right ? kExitYes : kExitNo;
}

}  // namespace

void AddRepairVerb(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("repair", "Mend an exported ONNX folder by the checkpoint it was made of");
  auto args = std::make_shared<RepairArgs>();
  verb->add_option("FOLDER", args->folder, "The folder with the ONNX model")
      ->required()
      ->type_name("");
  verb->add_option("--reference", args->reference,
                   "The checkpoint: a Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("PATH");
  verb->add_option("--out", args->out, "The new folder; it must not exist")->type_name("NEW");
  verb->add_flag("--in-place", args->in_place, "Write over FOLDER instead");
  verb->add_flag("--no-verify", args->unverified, "Do not run the folder before and after");
  verb->add_flag("--json", args->json, "What was done as JSON");
  verb->footer(
      "Everything that nothing was found about stays byte-identical. Where ONNX Runtime is\n"
      "installed, both folders are verified against the checkpoint; the new one is audited again,\n"
      "and is not kept when it is further from the checkpoint than the one that was given.\n"
      "Exit codes: 0 nothing but quantization is left; 1 something is left that must be exported\n"
      "again; 2 wrong usage; 3 a file cannot be used.\n\n"
      "Example: lockstep repair gemma-onnx --reference gemma-3-270m --out gemma-onnx-fixed");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep

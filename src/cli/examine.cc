#include "cli/examine.h"

#include <algorithm>

#include "audit/candidate_weights.h"
#include "subjects/onnx_subject.h"
#include "subjects/text_side.h"

namespace lockstep {
namespace {

// What is shown whole, and quickly: the shortest probes that differ say most for their time.
constexpr size_t kProbesToDiagnose = 3;

// How a long prompt begins: there attention sees little, and what is wrong elsewhere shows alone.
std::vector<Probe> Beginnings(const std::vector<Probe>& probes, bool all_positions) {
  std::vector<Probe> out;
  const auto longest = std::max_element(
      probes.begin(), probes.end(), [](auto& a, auto& b) { return a.ids.size() < b.ids.size(); });
  for (const size_t length : {1, 4}) {
    if (longest == probes.end() || longest->ids.size() <= length) continue;
    Probe probe{.name = fmt::format("first {} of {}", length, longest->name)};
    probe.ids.assign(longest->ids.begin(), longest->ids.begin() + static_cast<int64_t>(length));
    probe.steps = 1;
    probe.all_positions = all_positions;
    out.push_back(std::move(probe));
  }
  return out;
}

bool Quantized(const AuditReport& report) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [](const Finding& f) { return f.kind == FindingKind::kQuantized; });
}

// The rounding of the activations that the reference imitates explains all that is left.
bool WithinEmulation(const Verification& v) {
  return std::all_of(v.prompts.begin(), v.prompts.end(), [](const PromptComparison& p) {
    const double allowed = std::max(p.tolerance, kEmulatedRounding);
    const bool compared = p.verdict == Verdict::kMatch || p.verdict == Verdict::kDiffers;
    const bool parted = p.parting && !(p.parting->gap && *p.parting->gap <= 2 * allowed);
    return compared && p.max_abs() <= allowed && !parted;
  });
}

double WorstOf(const Verification& v) {
  double worst = 0;
  for (const PromptComparison& p : v.prompts) worst = std::max(worst, p.max_abs());
  return worst;
}

// The candidate against the reference with the candidate's own codes for weights. The verdict of
// `out` becomes what explains the difference; where nothing does, the base of a diagnosis is kept.
struct OwnWeights {
  CandidateWeights weights;
  std::unique_ptr<ReferenceSubject> subject;
};
Result<std::optional<OwnWeights>> CompareOnOwnWeights(const ReferenceSubject& reference,
                                                      OnnxSubject& candidate,
                                                      const VerifyOptions& options,
                                                      ThreadPool& pool, const Progress& progress,
                                                      Examination& out) {
  OwnWeights own;
  LS_TRY(own.weights, WithWeightsOf(reference.model(), candidate.model(), *out.audit));
  if (own.weights.replaced == 0) return std::nullopt;
  out.base = fmt::format("with the candidate's own {} quantized matrices", own.weights.replaced);
  own.subject = ReferenceSubject::Create(own.weights.model,
                                         LoadTextModelOrNote(reference.model().checkpoint), pool);
  LS_TRY(Verification plain, Verify(*own.subject, candidate, options, progress));
  Verification& v = out.verification;
  const double before = WorstOf(v);
  if (plain.verdict == Verdict::kMatch) {
    v.verdict = Verdict::kQuantizedWeights;
    v.sentence = fmt::format(
        "the same model with weights in fewer bits: on the candidate's own codes the reference's "
        "formulas give its logits on all {} prompts (max |Δ| {:.2e}, {:.2e} on the checkpoint's "
        "weights)",
        v.prompts.size(), WorstOf(plain), before);
    return std::nullopt;
  }
  if (own.weights.rounder.empty()) return own;
  own.subject->RoundWith(&own.weights.rounder);
  LS_TRY(const Verification rounded, Verify(*own.subject, candidate, options, progress));
  if (WithinEmulation(rounded)) {
    v.verdict = Verdict::kQuantizedActivations;
    v.sentence = fmt::format(
        "the same model with quantized weights and quantized activations: on the candidate's own "
        "codes, and with its activations rounded to int8 where its operators do that, the "
        "reference's formulas give its logits on all {} prompts (max |Δ| {:.2e}; {:.2e} without "
        "that rounding, {:.2e} on the checkpoint's weights)",
        v.prompts.size(), WorstOf(rounded), WorstOf(plain), before);
    return std::nullopt;
  }
  own.subject->RoundWith(nullptr);
  return own;
}

// The probes on which the two differ, the shortest first, and one more where only a long one does.
std::vector<Probe> ProbesThatDiffer(const ProbePlan& plan, const Verification& v) {
  std::vector<Probe> out;
  for (size_t i = 0; i < std::min(plan.probes.size(), v.prompts.size()); ++i)
    if (v.prompts[i].verdict == Verdict::kDiffers) out.push_back(plan.probes[i]);
  std::stable_sort(out.begin(), out.end(), [](const Probe& a, const Probe& b) {
    return a.ids.size() < b.ids.size();
  });
  // A single token tells nothing about positions: it comes last.
  std::stable_partition(out.begin(), out.end(), [](const Probe& p) { return p.ids.size() > 1; });
  if (out.size() > kProbesToDiagnose) out.resize(kProbesToDiagnose);
  return out;
}

}  // namespace

std::vector<Hypothesis> HypothesesOf(const AuditReport& report) {
  std::vector<Hypothesis> out;
  for (const Finding& finding : report.findings)
    if (finding.edit && !finding.edit->empty())
      out.push_back({.edit = *finding.edit,
                     .origin = Origin::kAudit,
                     .id = {},
                     .sentence = finding.sentence});
  return out;
}

Result<Diagnosis> DiagnoseOn(const Model& model, Subject& candidate, std::vector<Probe> probes,
                             DiagnoseOptions options, ThreadPool& pool, const Progress& progress) {
  const bool any_prompt = candidate.Can().any_prompt;
  if (any_prompt) {
    const auto beginnings = Beginnings(probes, candidate.Can().all_positions);
    probes.insert(probes.end(), beginnings.begin(), beginnings.end());
  }
  std::vector<PromptTrace> runs;
  for (Probe& probe : probes) {
    probe.all_positions |= candidate.Can().all_positions && !any_prompt;
    LS_TRY(PromptTrace run, candidate.Run(probe, progress));
    double allowed = 0;
    if (candidate.Can().precision != Precision::kFull) {
      LS_TRY(allowed, candidate.MeasureRounding(run, 1e30, progress));
      allowed *= kRoundingMultiple;
    }
    options.allowed.push_back(allowed);
    runs.push_back(std::move(run));
  }
  return Diagnose(model, runs, options, pool, progress);
}

Result<Examination> Examine(Subject& reference, Subject& candidate,
                            const std::filesystem::path& path, const ExamineOptions& options,
                            ThreadPool& pool, const Progress& progress) {
  Examination out;
  const auto* const checkpoint = dynamic_cast<const ReferenceSubject*>(&reference);
  auto* const onnx = dynamic_cast<OnnxSubject*>(&candidate);
  const auto* const other = dynamic_cast<const ReferenceSubject*>(&candidate);
  std::vector<std::string> notes;
  if (options.audits && checkpoint != nullptr && (onnx != nullptr || other != nullptr)) {
    auto audit = onnx != nullptr ? Audit(checkpoint->model(), onnx->model())
                                 : Audit(checkpoint->model(), other->model());
    if (audit)
      out.audit = *std::move(audit);
    else
      notes.push_back(fmt::format("the weights were not looked at: {}", audit.error().message));
  }
  LS_TRY(out.verification, Verify(reference, candidate, options.verify, progress));
  Verification& v = out.verification;
  v.notes.insert(v.notes.end(), notes.begin(), notes.end());
  if (v.verdict != Verdict::kDiffers || v.prompts.empty() || checkpoint == nullptr) return out;

  std::optional<OwnWeights> own;
  if (out.audit && onnx != nullptr && Quantized(*out.audit)) {
    LS_TRY(own,
           CompareOnOwnWeights(*checkpoint, *onnx, options.verify, pool, progress, out));
    if (v.verdict != Verdict::kDiffers) return out;
  }
  if (!options.diagnoses) return out;
  LS_TRY(const ProbePlan plan, PlanProbes(reference, candidate, options.verify));
  DiagnoseOptions diagnose = options.diagnose;
  if (out.audit) diagnose.audit = HypothesesOf(*out.audit);
  LS_TRY(out.diagnosis, DiagnoseOn(own ? own->weights.model : checkpoint->model(), candidate,
                                   ProbesThatDiffer(plan, v), diagnose, pool, progress));
  return out;
}

}  // namespace lockstep

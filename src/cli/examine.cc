#include "cli/examine.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/in_sixteen_bits.h"
#include "cli/options.h"
#include "subjects/onnx_subject.h"
#include "subjects/open_subject.h"
#include "subjects/text_side.h"
#include "verify/bisect.h"
#include "verify/caching_subject.h"

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
  // Codes that are exactly the checkpoint's numbers are no finding, but their input is rounded.
  return std::ranges::any_of(report.findings,
                             [](const Finding& f) { return f.kind == FindingKind::kQuantized; }) ||
         report.decoder.RoundsToInt8();
}

// Findings that say that the candidate computes something else.
int64_t UnshownFaults(const AuditReport& report) {
  return std::count_if(report.findings.begin(), report.findings.end(), [](const Finding& f) {
    return f.kind != FindingKind::kQuantized && f.kind != FindingKind::kGeneration &&
           f.kind != FindingKind::kTokenizer;
  });
}

// Without a single answer there is nothing that was run.
bool AnyAnswer(const Verification& v) {
  return std::ranges::any_of(v.prompts, [](const PromptComparison& p) {
    return !p.steps.empty() ||
           (p.verdict != Verdict::kSubjectFailed && p.verdict != Verdict::kNotComparable);
  });
}

// What is known of a graph that this machine's ONNX Runtime cannot run.
std::string AuditedNotRun(const AuditReport& report) {
  // Another end of sequence or tokenizer is told above as well.
  if (!report.healthy())
    return "; audited, not run: what was found is told above, and whatever an audit cannot see is "
           "not known";
  const bool exact = report.findings.empty();
  return fmt::format("; audited, not run: what could be compared without running it is right{}",
                     exact ? "" : ", but for its precision");
}

// The probes on which the two differ, the shortest first, and one more where only a long one does.
std::vector<Probe> ProbesThatDiffer(const ProbePlan& plan, const Verification& v) {
  std::vector<Probe> out;
  for (size_t i = 0; i < std::min(plan.probes.size(), v.prompts.size()); ++i)
    if (v.prompts[i].verdict == Verdict::kDiffers) out.push_back(plan.probes[i]);
  std::stable_sort(out.begin(), out.end(),
                   [](const Probe& a, const Probe& b) { return a.ids.size() < b.ids.size(); });
  // A single token tells nothing about positions: it comes last.
  std::stable_partition(out.begin(), out.end(), [](const Probe& p) { return p.ids.size() > 1; });
  if (out.size() > kProbesToDiagnose) out.resize(kProbesToDiagnose);
  return out;
}

// Runs that the cache holds already. A run's noise is what it was allowed to differ by, as noise.
Result<std::vector<PromptTrace>> AnswersOf(const Subject& reference, CachingSubject& candidate,
                                           const ExamineOptions& options, const Verification& v,
                                           const Progress& progress) {
  std::vector<PromptTrace> out;
  LS_TRY(const ProbePlan plan, PlanProbes(reference, candidate, options.verify));
  for (size_t i = 0; i < std::min(plan.probes.size(), v.prompts.size()); ++i) {
    if (out.size() == options.keeps) break;
    auto run = candidate.Run(plan.probes[i], progress);
    if (!run && IsInterrupted(run.error())) return tl::unexpected(run.error());
    if (!run) continue;
    run->name = plan.probes[i].name;
    run->noise = (v.prompts[i].allowed() - kToleranceFloor) / kNoiseMultiple;
    out.push_back(*std::move(run));
  }
  return out;
}

}  // namespace

std::optional<Examination> AuditedAlone(const Subject& reference,
                                        const ReferenceSubject& checkpoint, const std::string& name,
                                        const Error& error) {
  if (!OrtRuntime::Load()) return std::nullopt;
  const auto model = OnnxModel::Open(WithoutPrefix(name));
  if (!model) return std::nullopt;
  auto audit = Audit(checkpoint.model(), *model);
  if (!audit) return std::nullopt;
  Examination out{.verification = FailedVerification(reference.Name(), name, error)};
  out.verification.sentence += AuditedNotRun(*audit);
  out.audit = *std::move(audit);
  return out;
}

ExitCode ExitCodeOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMatch:
    case Verdict::kPrecision:
    case Verdict::kQuantizedActivations:
    case Verdict::kQuantizedWeights:
      return kExitYes;
    case Verdict::kDiffers:
    case Verdict::kDifferentTokens:
      return kExitNo;
    case Verdict::kSubjectFailed:
    case Verdict::kNotComparable:
      return kExitUnusable;
  }
  return kExitUnusable;
}

ExitCode ExitCodeOf(const Examination& e) {
  return !e.changed.empty() || (e.audit && UnshownFaults(*e.audit) > 0)
             ? std::max(ExitCodeOf(e.verification.verdict), kExitNo)
             : ExitCodeOf(e.verification.verdict);
}

void AddLongest(CLI::App& verb, int64_t& longest) {
  verb.add_option("--longest", longest,
                  "Without prompts of yours, also probes that the model's facts ask for, such as\n"
                  "one longer than its window, of at most N tokens; 0: none")
      ->check(WholeNumber(0, 10'000'000))
      ->type_name("N")
      ->capture_default_str();
}

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
                             DiagnoseOptions options, OnnxTaps* inside, RoundedReference* rounded,
                             ThreadPool& pool, const Progress& progress) {
  const size_t differing = probes.size();
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
    if (rounded != nullptr) {
      LS_TRY(auto inputs, rounded->InputsAlong(run, progress));
      options.rounding.emplace_back(
          [places = rounded->places(),
           theirs = std::shared_ptr<const TheirInputs>(std::move(inputs))](const Weights& weights) {
            return std::make_unique<const Int8Rounder>(places, weights, theirs.get());
          });
    }
    runs.push_back(std::move(run));
  }
  // Where only greedy steps differ (a window crossed by them), the prompt's taps agree: the next.
  bool found_inside = false;
  for (size_t i = 0; inside != nullptr && i < differing; ++i) {
    const std::span<const RounderFor> rounding =
        rounded == nullptr ? std::span<const RounderFor>() : std::span(&options.rounding[i], 1);
    LS_RETURN_IF_ERROR(inside->AddTo(runs[i], model, pool, progress,
                                     rounding.empty() ? RounderFor() : rounding[0],
                                     options.least_tolerance));
    LS_TRY(const auto first, FirstDifferentTap(model, std::span(&runs[i], 1), pool, rounding,
                                               options.least_tolerance));
    found_inside = first.has_value();
    if (found_inside) break;
  }
  // And where no prompt's own call differs, the calls of the steps of the first.
  if (inside != nullptr && !found_inside && differing > 0) {
    DecodingRun decoding;
    if (rounded != nullptr) decoding.rounding = options.rounding[0];
    LS_TRY(auto steps, inside->Decoding(runs[0], model, pool, progress, decoding.rounding,
                                        options.least_tolerance));
    if (steps) {
      decoding.trace = *std::move(steps);
      options.decoding = std::move(decoding);
    }
  }
  LS_TRY(Diagnosis diagnosis, Diagnose(model, runs, options, pool, progress));
  if (inside != nullptr && diagnosis.first && diagnosis.first->tap)
    diagnosis.first->operation = inside->OperationAt(*diagnosis.first->tap);
  return diagnosis;
}

namespace {

// The edit is of nothing but weights that were taken over as the candidate has them.
bool IsOf(const Edit& edit, const std::vector<WeightId>& taken) {
  if (edit.weights.empty() || !edit.spec.empty() || !edit.run.empty()) return false;
  return std::ranges::all_of(edit.weights, [&](const WeightEdit& weight) {
    return std::ranges::any_of(taken, [&](const WeightId& id) {
      return weight.role == id.role && weight.part == id.part &&
             (weight.layers.empty() ||
              std::ranges::find(weight.layers, id.layer) != weight.layers.end());
    });
  });
}

// What was found in them, in the audit's own words.
std::string WordsOf(const AuditReport& audit, const std::vector<WeightId>& taken) {
  constexpr size_t kMost = 3;
  std::vector<std::string> words;
  size_t more = 0;
  for (const Finding& finding : audit.findings) {
    if (finding.kind != FindingKind::kWeight) continue;
    if (finding.edit && !IsOf(*finding.edit, taken)) continue;
    if (words.size() < kMost)
      words.push_back(finding.sentence);
    else
      ++more;
  }
  return fmt::format("its own numbers in {} matri{}: {}{}", taken.size(),
                     taken.size() == 1 ? "x" : "ces", fmt::join(words, "; "),
                     more > 0 ? fmt::format("; and {} more", more) : "");
}

// A diagnosis on the candidate's own numbers in some matrices, as one from the reference on: they
// are its first cause.
void PutFirst(Diagnosis& d, const Diagnosis& without, std::string words, size_t matrices) {
  Cause cause{.hypothesis = {.origin = Origin::kAudit, .sentence = std::move(words)},
              .after = d.before};
  const bool alone = d.verdict == DiagnosisVerdict::kMatch;
  if (alone) d.after = d.before;
  d.before = without.before;
  if (without.first) d.first = without.first;
  for (Alternative& other : d.indistinguishable) ++other.replaces;
  if (d.runner_up) ++d.runner_up->replaces;
  if (d.verdict == DiagnosisVerdict::kUnexplained) {
    d.nearest.insert(d.nearest.begin(), std::move(cause));
    return;
  }
  d.verdict = DiagnosisVerdict::kExplained;
  d.causes.insert(d.causes.begin(), std::move(cause));
  d.sentence = fmt::format(
      "with the candidate's own numbers in {} matri{} at fault{} the reference reproduces it at "
      "all "
      "{} compared positions: max |Δ| {:.2e} falls to {:.1e}, {:.2g} times the tolerance",
      matrices, matrices == 1 ? "x" : "ces",
      alone ? std::string()
            : fmt::format(" and {} edit{}", d.causes.size() - 1, d.causes.size() == 2 ? "" : "s"),
      d.positions, d.before.max_abs, d.after.max_abs, d.after.times_tolerance);
}

// What the audit found, for a candidate that is held against its own numbers in 16 bits: what is
// only kept in fewer bits is in the formulas already.
std::vector<Hypothesis> HypothesesBeside(const AuditReport& audit, const InSixteenBits* sixteen) {
  if (sixteen == nullptr) return HypothesesOf(audit);
  AuditReport faults = audit;
  if (sixteen->formulas)
    std::erase_if(faults.findings,
                  [](const Finding& f) { return f.kind == FindingKind::kQuantized; });
  std::vector<Hypothesis> out = HypothesesOf(faults);
  if (!sixteen->formulas) out.push_back(sixteen->cache);
  return out;
}

// The candidate differs, and fewer bits are not all that is between the two.
Result<Diagnosis> Why(Subject& reference, const ReferenceSubject& checkpoint,
                      CachingSubject& candidate, OnnxSubject* onnx, const InSixteenBits* sixteen,
                      const ExamineOptions& options, Examination& out, ThreadPool& pool,
                      const Progress& progress) {
  const bool formulas = sixteen != nullptr && sixteen->formulas;
  Subject& asked = formulas ? static_cast<Subject&>(*sixteen->candidate) : candidate;
  Verification& v = out.verification;
  LS_TRY(const ProbePlan plan, PlanProbes(reference, candidate, options.verify));
  const std::vector<Probe> probes = ProbesThatDiffer(plan, v);
  std::optional<OnnxTaps> inside;
  if (out.audit && onnx != nullptr) inside.emplace(*onnx, out.audit->decoder);
  const auto ask = [&](const CandidateWeights& weights,
                       DiagnoseOptions diagnose) -> Result<Diagnosis> {
    std::unique_ptr<ReferenceSubject> on_codes;
    std::optional<RoundedReference> rounded;
    if (!weights.rounds.empty()) {
      on_codes =
          ReferenceSubject::Create(weights.model, LoadTextModelOrNote(weights.model.checkpoint),
                                   pool, ReferenceSubject::Precision::kFloat, checkpoint.run());
      rounded.emplace(weights.rounds, *on_codes, candidate, *onnx);
      diagnose.least_tolerance = kEmulatedRounding;
    }
    return DiagnoseOn(weights.model, asked, probes, std::move(diagnose),
                      inside ? &*inside : nullptr, rounded ? &*rounded : nullptr, pool, progress);
  };
  const auto work = [&]() -> Result<Diagnosis> {
    CandidateWeights base{.model = formulas ? sixteen->formulas->model() : checkpoint.model()};
    if (out.own_codes) base = out.own_codes->weights;
    DiagnoseOptions diagnose = options.diagnose;
    if (out.audit) diagnose.audit = HypothesesBeside(*out.audit, sixteen);
    CandidateWeights faulty = base;
    std::vector<WeightId> taken;
    if (out.audit && onnx != nullptr && !formulas) {
      LS_TRY(taken, TakeFaultyWeights(faulty, onnx->model(), *out.audit));
    }
    if (taken.empty()) return ask(base, diagnose);
    // How far apart the two are, and from where on, without looking for a cause.
    DiagnoseOptions nothing = options.diagnose;
    nothing.systematic = false;
    nothing.seconds = 0;
    LS_TRY(const Diagnosis without, ask(base, nothing));
    DiagnoseOptions rest = diagnose;
    std::erase_if(rest.audit, [&](const Hypothesis& one) { return IsOf(one.edit, taken); });
    LS_TRY(Diagnosis found, ask(faulty, rest));
    // Numbers that were not the ones at fault, or not from these places.
    if (!(found.before.rms < without.before.rms)) return ask(base, diagnose);
    PutFirst(found, without, WordsOf(*out.audit, taken), taken.size());
    return found;
  };
  auto diagnosis = work();
  if (inside)
    for (const std::string& note : inside->notes())
      if (std::find(v.notes.begin(), v.notes.end(), note) == v.notes.end()) v.notes.push_back(note);
  return diagnosis;
}

}  // namespace

Result<Examination> Examine(Subject& reference, const ReferenceSubject* checkpoint, Subject& given,
                            const ExamineOptions& options, ThreadPool& pool,
                            const Progress& progress) {
  Examination out;
  auto* const onnx = dynamic_cast<OnnxSubject*>(&given);
  const auto* const other = dynamic_cast<const ReferenceSubject*>(&given);
  CachingSubject candidate(given);  // it is compared with more than one
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
  if (options.keeps > 0) {
    LS_TRY(out.answers, AnswersOf(reference, candidate, options, v, progress));
  }
  const int64_t unshown = out.audit ? UnshownFaults(*out.audit) : 0;
  const auto tell_unshown = [&] {
    if (v.verdict == Verdict::kDiffers || unshown == 0) return;
    v.sentence += fmt::format(
        "; but {} found without running it (above) did not show on these prompts: it is not the "
        "same model",
        unshown == 1 ? "what was" : fmt::format("{} things", unshown));
  };
  if (v.verdict == Verdict::kMatch) tell_unshown();
  if (out.audit && onnx != nullptr && v.verdict == Verdict::kSubjectFailed && !AnyAnswer(v))
    v.sentence += AuditedNotRun(*out.audit);
  if (v.verdict != Verdict::kDiffers || checkpoint == nullptr) return out;
  std::optional<InSixteenBits> sixteen;
  // Activations in int8 lose more than 16 bits do.
  if (out.audit && onnx != nullptr && !out.audit->decoder.RoundsToInt8()) {
    LS_TRY(sixteen, CompareInSixteenBits(*checkpoint, *onnx, *out.audit, candidate, options.verify,
                                         v, pool, progress));
    if (sixteen) out.base = sixteen->base;
    tell_unshown();
    if (v.verdict != Verdict::kDiffers) return out;
  }
  // Where only a passage differs it is the cache, and no edit of the model explains that.
  if (!PromptsDiffer(v)) return out;

  if (out.audit && onnx != nullptr && !sixteen && Quantized(*out.audit)) {
    auto compared = CompareOnOwnCodes(*checkpoint, *onnx, *out.audit, candidate, options.verify, v,
                                      pool, progress);
    if (!compared && IsInterrupted(compared.error())) return tl::unexpected(compared.error());
    if (compared)
      out.own_codes = *std::move(compared);
    else
      v.notes.push_back(
          fmt::format("the candidate's own codes were not tried: {}", compared.error().message));
    if (out.own_codes) out.base = out.own_codes->Words();
    tell_unshown();
    if (v.verdict != Verdict::kDiffers || (out.own_codes && out.own_codes->passage_alone)) {
      if (out.own_codes) out.own_codes->weights.model = {};  // as large as the model in fp32
      return out;
    }
  }
  if (out.audit && other != nullptr && out.audit->healthy()) {
    // The same facts, and weights that follow the reference's in fewer bits: the reference runs
    // both.
    v.verdict = Verdict::kQuantizedWeights;
    v.sentence = fmt::format(
        "the same model with weights in fewer bits: every fact is the reference's, and every "
        "weight follows its own (max |Δ| {:.2e} on the logits)",
        WorstOf(v));
    return out;
  }
  if (!options.diagnoses) return out;
  auto diagnosis = Why(reference, *checkpoint, candidate, onnx, sixteen ? &*sixteen : nullptr,
                       options, out, pool, progress);
  if (!diagnosis && IsInterrupted(diagnosis.error())) return tl::unexpected(diagnosis.error());
  if (diagnosis && diagnosis->verdict == DiagnosisVerdict::kExplained && out.own_codes)
    v.sentence += fmt::format(
        "; beside the causes told below its weights are quantized: they are "
        "told {}",
        out.base);
  if (diagnosis && diagnosis->verdict == DiagnosisVerdict::kExplained && sixteen &&
      sixteen->formulas)
    v.sentence +=
        fmt::format("; beside the causes told below it computes with {}, which is no fault",
                    sixteen->bits.Words());
  // That no cause can be looked for takes nothing from the verdict.
  if (diagnosis)
    out.diagnosis = *std::move(diagnosis);
  else
    v.notes.push_back(fmt::format("no cause was looked for: {}", diagnosis.error().message));
  if (out.own_codes) out.own_codes->weights.model = {};
  return out;
}

}  // namespace lockstep

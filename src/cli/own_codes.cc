#include "cli/own_codes.h"

#include <algorithm>

#include "cli/rounded_reference.h"
#include "subjects/text_side.h"
#include "verify/passages.h"

namespace lockstep {
namespace {

bool GivesLogits(const PromptComparison& p) {
  return p.tolerance > 0 && p.max_abs() <= std::max(p.tolerance, kEmulatedRounding);
}

// Other ids for a text are another matter than logits, and stay the verdict.
void Conclude(Verification& v, Verdict verdict, std::string sentence) {
  const auto tokens = std::find_if(v.prompts.begin(), v.prompts.end(), [](const auto& p) {
    return p.verdict == Verdict::kDifferentTokens;
  });
  const bool same = tokens == v.prompts.end();
  v.verdict = same ? verdict : Verdict::kDifferentTokens;
  v.sentence = same ? std::move(sentence)
                    : fmt::format("{}: {}; otherwise {}", tokens->name, tokens->sentence, sentence);
}

std::string TieWords(const TieCount& ties) {
  return fmt::format(
      "of {} activations {} lay between two codes within float noise{} and were rounded as the "
      "candidate did",
      ties.numbers, ties.ties,
      ties.ties > 0 ? fmt::format(" (at most {:.1e} of a step apart)", ties.widest) : "");
}

// Positions up to and with the first that differs.
int64_t UpToFirstDifference(const PromptComparison& p) {
  for (const StepComparison& step : p.steps)
    if (step.difference.max_abs > std::max(p.tolerance, kEmulatedRounding))
      return p.tokens + step.step;
  return p.tokens;
}

// How far apart the same number is on both sides, in steps between codes, where both are seen and
// the logits agree: float noise alone.
Result<double> NoiseInSteps(const std::vector<NamedPrompt>& prompts,
                            const CandidateWeights& weights, ReferenceSubject& subject,
                            Subject& candidate, OnnxSubject& onnx, const Progress& progress) {
  RoundedReference seen(weights.rounds, subject, candidate, onnx);
  for (const NamedPrompt& prompt : prompts) {
    const Probe probe{.name = prompt.name, .ids = prompt.ids, .steps = 1};
    LS_TRY(const PromptTrace ignored, seen.Run(probe, progress));
    static_cast<void>(ignored);
  }
  return seen.ties().numbers > 0 ? seen.ties().furthest : double{kTieSteps};
}

// Where operators round inside, nobody sees on which side of the middle a number fell there; from
// there on the two round differently everywhere. So the first tokens of prompts must agree exactly
// (most of them), and where a prompt does not, numbers inside must lie in the middle between two
// codes, as closely as float noise goes, before it first differs; and the difference be no larger
// than what it does to the reference when those fall the other way. A sentence of how closely, or
// nothing.
Result<std::optional<std::string>> CompareUnresolved(
    RoundedReference& rounded, ReferenceSubject& subject, const CandidateWeights& weights,
    Subject& candidate, OnnxSubject& onnx, const Verification& whole, const VerifyOptions& options,
    const Progress& progress) {
  constexpr size_t kLongestBeginning = 4;
  constexpr double kNoiseRoom = 4;  // what was measured is a sample of the noise
  LS_TRY(const ProbePlan plan, PlanProbes(rounded, candidate, options));
  VerifyOptions beginnings = options;
  beginnings.prompts.clear();
  beginnings.passages = false;
  beginnings.steps = 1;
  for (const Probe& probe : plan.probes)
    for (size_t n = 1; n <= std::min(kLongestBeginning, probe.ids.size()); ++n) {
      NamedPrompt prompt{.name = fmt::format("first {} of {}", n, probe.name)};
      prompt.ids.assign(probe.ids.begin(), probe.ids.begin() + static_cast<int64_t>(n));
      beginnings.prompts.push_back(std::move(prompt));
    }
  LS_TRY(const Verification first, Verify(rounded, candidate, beginnings, progress));
  std::vector<NamedPrompt> exact;
  for (size_t i = 0; i < std::min(first.prompts.size(), beginnings.prompts.size()); ++i)
    if (GivesLogits(first.prompts[i])) exact.push_back(beginnings.prompts[i]);
  if (2 * exact.size() <= first.prompts.size()) return std::nullopt;
  LS_TRY(const double noise, NoiseInSteps(exact, weights, subject, candidate, onnx, progress));
  const double steps = std::min<double>(kNoiseRoom * noise, kTieSteps);
  double worst_share = 0;
  int64_t ties = 0;
  for (size_t i = 0; i < whole.prompts.size(); ++i) {
    const PromptComparison& p = whole.prompts[i];
    if (GivesLogits(p)) continue;
    if (p.tolerance == 0 || i >= plan.probes.size()) return std::nullopt;
    LS_TRY(const auto as_here, rounded.RunWithHidden(plan.probes[i], {.steps = steps}, progress));
    const int64_t hidden = as_here.ties.Hidden(UpToFirstDifference(p));
    if (hidden == 0) return std::nullopt;
    ties += hidden;
    LS_TRY(const auto otherwise,
           rounded.RunWithHidden(plan.probes[i], {.steps = steps, .flip = true}, progress));
    const double effect = CompareRuns(as_here.run, otherwise.run, plan.probes[i].steps).max_abs();
    if (!(p.max_abs() <= kRoundingMultiple * effect)) return std::nullopt;
    worst_share = std::max(worst_share, p.max_abs() / effect);
  }
  return fmt::format(
      "the reference's formulas give its logits after {} of {} first tokens of prompts, and along "
      "whole prompts within {:.2g} times what it does when numbers inside its operators that lie "
      "in the middle between two codes ({} of them, to {:.1e} of a step) fall the other way",
      exact.size(), first.prompts.size(), worst_share, ties, steps);
}

// In a call of another length sums are added up in another order, so that a number between two
// codes may fall on the other one than in the whole prompt: what differs by a passage is compared
// with the reference again, rounded as the candidate did in those very calls.
Status ResolvePassages(RoundedReference& rounded, Subject& candidate, const VerifyOptions& options,
                       Verification& v, const Progress& progress) {
  const auto differs = [](const PassageComparison& p) { return p.verdict == Verdict::kDiffers; };
  if (std::ranges::none_of(v.passages, differs)) return {};
  LS_TRY(const ProbePlan plan, PlanProbes(rounded, candidate, options));
  for (PassageComparison& passage : v.passages) {
    if (!differs(passage)) continue;
    const auto probe = std::ranges::find(plan.probes, passage.prompt, &Probe::name);
    if (probe == plan.probes.end()) continue;
    LS_TRY(PromptTrace ours, rounded.Run(*probe, progress));
    LS_TRY(PromptTrace theirs, candidate.Run(*probe, progress));
    const PlainRun plain{*probe, std::move(ours), std::move(theirs), {}, {}};
    for (const Probe& asked : PassagesOf(plain, std::span(&passage.passage, 1), rounded.spec())) {
      const auto passed = rounded.RunPassage(asked, progress);
      if (!passed && IsInterrupted(passed.error())) return tl::unexpected(passed.error());
      if (!passed) continue;
      const PromptComparison compared =
          CompareRuns(passed->reference, passed->candidate, asked.steps, {.reference = true});
      if (!GivesLogits(compared)) continue;
      passage.verdict = Verdict::kQuantizedActivations;
      passage.max_abs = compared.max_abs();
      passage.allowed = std::max(compared.tolerance, kEmulatedRounding);
      passage.first_position.reset();
      passage.sentence = fmt::format(
          "the reference's formulas give its logits to {:.1e}, numbers between two codes rounded "
          "as the candidate did in these calls",
          compared.max_abs());
    }
  }
  return {};
}

}  // namespace

Result<std::optional<OwnCodes>> CompareOnOwnCodes(const ReferenceSubject& reference,
                                                  OnnxSubject& onnx, const AuditReport& audit,
                                                  Subject& candidate, const VerifyOptions& options,
                                                  Verification& v, ThreadPool& pool,
                                                  const Progress& progress) {
  OwnCodes own;
  LS_TRY(own.weights, WithWeightsOf(reference.model(), onnx.model(), audit));
  if (own.weights.replaced == 0) return std::nullopt;
  const auto subject = own.Subject(reference, pool);
  LS_TRY(const Verification plain, Verify(*subject, candidate, options, progress));
  own.before = WorstOf(v);
  own.plain = WorstOf(plain);
  // On its own codes more can be told than beside the checkpoint's weights.
  if (!PromptsDiffer(plain)) v.passages = plain.passages;
  if (plain.verdict == Verdict::kDiffers && !PromptsDiffer(plain)) {
    own.passage_alone = true;
    v.sentence = fmt::format("with the candidate's own {} quantized matrices: {}",
                             own.weights.replaced, plain.sentence);
    return own;
  }
  const auto within = [](const PromptComparison& p) {
    return p.tolerance > 0 && p.max_abs() <= p.tolerance;
  };
  if (std::all_of(plain.prompts.begin(), plain.prompts.end(), within)) {
    Conclude(v, Verdict::kQuantizedWeights,
             fmt::format("the same model with weights in fewer bits: on the candidate's own codes "
                         "the reference's formulas give its logits on all {} prompts (max |Δ| "
                         "{:.2e}, {:.2e} on the checkpoint's weights)",
                         v.prompts.size(), own.plain, own.before));
    return own;
  }
  if (own.weights.rounds.empty()) {
    v.notes.push_back(fmt::format(
        "on the candidate's own codes its logits are {:.2e} from the reference's", own.plain));
    return own;
  }

  RoundedReference rounded(own.weights.rounds, *subject, candidate, onnx);
  VerifyOptions prompts_alone = options;
  prompts_alone.passages = false;
  LS_TRY(const Verification whole, Verify(rounded, candidate, prompts_alone, progress));
  own.rounded = WorstOf(whole);
  own.ties = rounded.ties();
  own.moved = rounded.moved();
  const std::vector<std::string> notes = rounded.Notes();
  v.notes.insert(v.notes.end(), notes.begin(), notes.end());
  if (own.moved > 0)
    v.notes.push_back(
        fmt::format("the graph's own logits move by {:.1e} when it also gives its activations, "
                    "from which ties were resolved",
                    own.moved));
  std::optional<std::string> explained;
  if (std::all_of(whole.prompts.begin(), whole.prompts.end(), GivesLogits)) {
    explained = fmt::format("the reference's formulas give its logits on all {} prompts to {:.1e}",
                            whole.prompts.size(), *own.rounded);
  } else if (own.weights.inside > 0 || !notes.empty()) {
    LS_TRY(explained, CompareUnresolved(rounded, *subject, own.weights, candidate, onnx, whole,
                                        options, progress));
  }
  if (!explained) {
    v.notes.push_back(fmt::format(
        "on the candidate's own codes its logits are {:.2e} from the reference's, and {:.2e} with "
        "activations rounded as its operators do ({})",
        own.plain, *own.rounded, TieWords(own.ties)));
    return own;
  }
  Conclude(
      v, Verdict::kQuantizedActivations,
      fmt::format("the same model with quantized weights and quantized activations: on the "
                  "candidate's own codes, and with activations rounded to int8 where its operators "
                  "do that, {}; {}; max |Δ| {:.2e} without that rounding, {:.2e} on the "
                  "checkpoint's weights",
                  *explained, TieWords(own.ties), own.plain, own.before));
  LS_RETURN_IF_ERROR(ResolvePassages(rounded, candidate, options, v, progress));
  ConcludePassages(v);
  own.passage_alone = v.verdict == Verdict::kDiffers;
  return own;
}

std::unique_ptr<ReferenceSubject> OwnCodes::Subject(const ReferenceSubject& reference,
                                                    ThreadPool& pool) const {
  return ReferenceSubject::Create(weights.model, LoadTextModelOrNote(weights.model.checkpoint),
                                  pool, ReferenceSubject::Precision::kFloat, reference.run());
}

std::string OwnCodes::Words() const {
  return fmt::format("on the candidate's own codes ({} matrices){}", weights.replaced,
                     weights.rounds.empty() ? "" : ", with its int8 rounding of activations");
}

Json ToJson(const OwnCodes& codes) {
  Json json = {{"matrices", codes.weights.replaced},
               {"max_abs", codes.plain},
               {"max_abs_on_checkpoint", codes.before}};
  if (!codes.rounded) return json;
  json["rounded"] = {{"max_abs", *codes.rounded},        {"activations", codes.ties.numbers},
                     {"ties", codes.ties.ties},          {"widest_tie_steps", codes.ties.widest},
                     {"other_codes", codes.ties.others}, {"furthest_steps", codes.ties.furthest},
                     {"moved_by_outputs", codes.moved}};
  return json;
}

}  // namespace lockstep

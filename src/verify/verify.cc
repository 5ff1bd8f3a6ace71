#include "verify/verify.h"

#include <algorithm>

#include "verify/passages.h"

namespace lockstep {
namespace {

// The overall verdict: a difference counts most, because it is an answer.
Verdict Worst(const std::vector<PromptComparison>& prompts) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(prompts.begin(), prompts.end(),
                       [&](const PromptComparison& p) { return p.verdict == verdict; });
  };
  for (const Verdict verdict :
       {Verdict::kDiffers, Verdict::kDifferentTokens, Verdict::kSubjectFailed,
        Verdict::kNotComparable, Verdict::kQuantizedActivations, Verdict::kQuantizedWeights,
        Verdict::kPrecision})
    if (any(verdict)) return verdict;
  return Verdict::kMatch;
}

std::string Sentence(const Verification& v) {
  size_t matches = 0;
  double worst = 0, worst_ratio = 0, worst_share = 0;
  for (const PromptComparison& prompt : v.prompts) {
    matches += prompt.verdict == Verdict::kMatch;
    if (prompt.tolerance > 0) {
      worst = std::max(worst, prompt.max_abs());
      worst_ratio = std::max(worst_ratio, prompt.max_abs() / prompt.tolerance);
      if (prompt.rounding) worst_share = std::max(worst_share, prompt.max_abs() / *prompt.rounding);
    }
  }
  const std::string numbers =
      fmt::format("max |Δ| {:.2e}, {:.2g} times the tolerance", worst, worst_ratio);
  switch (v.verdict) {
    case Verdict::kMatch:
      return fmt::format("the candidate gives the reference's logits on all {} prompts ({})",
                         v.prompts.size(), numbers);
    case Verdict::kDiffers:
      return fmt::format(
          "the candidate's logits differ from the reference's on {} of {} prompts "
          "({})",
          v.prompts.size() - matches, v.prompts.size(), numbers);
    case Verdict::kQuantizedWeights:  // concluded by who looked at the weights (cli/examine.h)
      return "the reference's own formulas on the candidate's weights";
    case Verdict::kPrecision:
    case Verdict::kQuantizedActivations:
      return fmt::format(
          "as far as this shows, the same model, less exactly: {} explains every difference on all "
          "{} prompts (max |Δ| {:.2e}, at most {:.2g} times what that rounding does to the "
          "reference; {} are allowed); a smaller fault is seen only with --activations fp32 --kv "
          "fp32",
          v.verdict == Verdict::kPrecision ? "rounding the activations or the cache"
                                           : "quantizing the activations",
          v.prompts.size(), worst, worst_share, kRoundingMultiple);
    case Verdict::kDifferentTokens:
    case Verdict::kSubjectFailed:
    case Verdict::kNotComparable:
      break;
  }
  const auto first = std::find_if(v.prompts.begin(), v.prompts.end(),
                                  [&](const auto& p) { return p.verdict == v.verdict; });
  return fmt::format("{}: {}", first->name, first->sentence);
}

PromptComparison Failed(const Probe& probe, const Error& error) {
  PromptComparison out;
  out.name = probe.name;
  out.verdict = Verdict::kSubjectFailed;
  out.tokens = static_cast<int64_t>(probe.ids.size());
  out.sentence = error.message;
  return out;
}

// What the two sides' rounding does together; nothing where both have full precision.
Result<std::optional<RoundingEffect>> RoundingOf(Subject& reference, const PromptTrace& a,
                                                 Subject& candidate, const PromptTrace& b,
                                                 double enough, const Progress& progress) {
  std::optional<RoundingEffect> effect;
  for (const auto& [subject, run] : {std::pair{&reference, &a}, {&candidate, &b}}) {
    const Precision precision = subject->Can().precision;
    if (precision == Precision::kFull) continue;
    LS_TRY(const double moved, subject->MeasureRounding(*run, enough, progress));
    if (!effect) effect.emplace();
    effect->precision = std::max(effect->precision, precision);
    effect->max_abs += moved;
  }
  return effect;
}

std::vector<std::string> NotesOf(const Subject& reference, const Subject& candidate) {
  std::vector<std::string> notes;
  for (const auto& [side, subject] :
       {std::pair{"reference", &reference}, {"candidate", &candidate}})
    for (const std::string& note : subject->Notes())
      notes.push_back(fmt::format("{}: {}", side, note));
  return notes;
}

}  // namespace

bool PromptsDiffer(const Verification& v) {
  return std::any_of(v.prompts.begin(), v.prompts.end(),
                     [](const PromptComparison& p) { return p.verdict == Verdict::kDiffers; });
}

double WorstOf(const Verification& v) {
  double worst = 0;
  for (const PromptComparison& p : v.prompts) worst = std::max(worst, p.max_abs());
  return worst;
}

Verification FailedVerification(std::string reference, std::string candidate, const Error& error) {
  Verification out{.reference = std::move(reference), .candidate = std::move(candidate)};
  out.verdict = Verdict::kSubjectFailed;
  out.sentence = error.message;
  return out;
}

Result<Verification> Verify(Subject& reference, Subject& candidate, const VerifyOptions& options,
                            const Progress& progress) {
  Verification out;
  for (const auto& [side, subject] :
       {std::pair{"reference", &reference}, {"candidate", &candidate}}) {
    const Status ready = subject->Prepare(
        [&, side = std::string(side)](std::string_view doing, int64_t done, int64_t total) {
          return progress(fmt::format("{}: {}", side, doing), done, total);
        });
    if (ready) continue;
    if (IsInterrupted(ready.error())) return tl::unexpected(ready.error());
    return FailedVerification(reference.Name(), candidate.Name(), ready.error());
  }
  out.reference = reference.Name();
  out.candidate = candidate.Name();
  const int64_t columns = reference.vocab_size(), others = candidate.vocab_size();
  if (columns > 0 && others > 0 && columns != others) {
    out.notes = NotesOf(reference, candidate);
    out.verdict = Verdict::kDiffers;
    out.sentence = fmt::format(
        "the two are not the same model: the reference has logits for {} tokens, the candidate for "
        "{}",
        columns, others);
    return out;
  }
  LS_TRY(ProbePlan plan, PlanProbes(reference, candidate, options));

  const bool all_positions = reference.Can().all_positions && candidate.Can().all_positions &&
                             !(reference.Can().any_prompt && candidate.Can().any_prompt);
  const std::vector<size_t> again =
      options.passages && !candidate.Can().passages.empty()
          ? ProbesForPassages(plan,
                              reference.spec() != nullptr ? reference.spec() : candidate.spec())
          : std::vector<size_t>{};
  std::vector<PlainRun> plain;  // in the order of `again`
  plain.resize(again.size());
  for (size_t i = 0; i < plan.probes.size(); ++i) {
    Probe probe = plan.probes[i];
    probe.all_positions = all_positions;
    probe.hidden = options.hidden && reference.Can().hidden && candidate.Can().hidden;
    const auto told = [&](std::string_view side) {
      return [&progress, &plan, &probe, i, side = std::string(side)](std::string_view doing,
                                                                     int64_t done, int64_t total) {
        return progress(fmt::format("prompt {} of {} ({}), {}: {}", i + 1, plan.probes.size(),
                                    probe.name, side, doing),
                        done, total);
      };
    };
    probe.measure_noise = reference.Can().measures_noise;
    const auto a = reference.Run(probe, told("reference"));
    if (!a && IsInterrupted(a.error())) return tl::unexpected(a.error());
    // Only what a reference without noise (a trace) leaves open: it costs a run in fp64.
    const Measured measured{
        .reference = probe.measure_noise,
        .candidate = a && (!a->noise || (!probe.measure_noise && !PlausibleNoise(*a))) &&
                     candidate.Can().measures_noise};
    probe.measure_noise = measured.candidate;
    const auto b = a ? candidate.Run(probe, told("candidate")) : a;
    if (!b && IsInterrupted(b.error())) return tl::unexpected(b.error());
    PromptComparison compared = a && b ? CompareRuns(*a, *b, options.steps, measured)
                                       : Failed(probe, a ? b.error() : a.error());
    if (compared.verdict == Verdict::kDiffers) {
      const double unexplained = std::max(
          compared.max_abs(), compared.parting ? compared.parting->gap.value_or(0) / 2 : 0);
      const auto rounding = RoundingOf(reference, *a, candidate, *b,
                                       unexplained / kRoundingMultiple, told("candidate"));
      if (!rounding && IsInterrupted(rounding.error())) return tl::unexpected(rounding.error());
      if (!rounding)
        out.notes.push_back(fmt::format("{}: {}", probe.name, rounding.error().message));
      else if (*rounding)
        compared = CompareRuns(*a, *b, options.steps, measured, *rounding);
    }
    if (compared.claimed_noise)
      out.notes.push_back(fmt::format(
          "{}: the recording claims a noise of {:.1e}, which is not plausible; {:.1e} counts",
          probe.name, *compared.claimed_noise, compared.noise));
    compared.name = probe.name;
    if (const auto found = std::ranges::find(again, i); found != again.end() && a && b)
      plain[static_cast<size_t>(found - again.begin())] = {plan.probes[i], *a, *b, compared, {}};
    const bool answered =
        compared.verdict != Verdict::kSubjectFailed && compared.verdict != Verdict::kNotComparable;
    if (!plan.token_faults[i].empty() && answered) {
      // The logits below are those of the same ids: they tell whether the models agree otherwise.
      compared.sentence = fmt::format(
          "{}; on the first's ids the logits {}", plan.token_faults[i],
          compared.verdict == Verdict::kMatch
              ? "match"
              : fmt::format("differ{}: {}",
                            compared.verdict == Verdict::kDiffers ? "" : " by rounding alone",
                            compared.sentence));
      compared.verdict = Verdict::kDifferentTokens;
    } else if (!plan.token_faults[i].empty()) {
      compared.verdict = Verdict::kDifferentTokens;
      compared.sentence = plan.token_faults[i];
    }
    out.prompts.push_back(std::move(compared));
  }
  std::erase_if(plain, [](const PlainRun& run) {
    return run.compared.verdict == Verdict::kSubjectFailed ||
           run.compared.verdict == Verdict::kNotComparable || run.probe.ids.empty();
  });
  for (PlainRun& run : plain)
    run.rounding = [&](double enough) {
      return RoundingOf(reference, run.reference, candidate, run.candidate, enough, progress);
    };
  LS_TRY(out.passages, ComparePassages(reference, candidate, plan, plain, progress));
  for (std::string& note : PassageNotes(out.passages)) out.notes.push_back(std::move(note));
  // Some notes are known only after a run: what a server did not show.
  plan.notes.insert(plan.notes.end(), out.notes.begin(), out.notes.end());
  out.notes = NotesOf(reference, candidate);
  out.notes.insert(out.notes.end(), plan.notes.begin(), plan.notes.end());
  out.verdict = Worst(out.prompts);
  out.sentence = Sentence(out);
  ConcludePassages(out);
  return out;
}

}  // namespace lockstep

#include "verify/power.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "faults/edit_maker.h"
#include "reference/interpreter.h"
#include "verify/compare.h"
#include "verify/edited_reference.h"

namespace lockstep {
namespace {

// One form of a fault, on its way through the prompts.
struct Form {
  const Fault* fault = nullptr;
  Edit edit;
  bool shown = false;
  double times = 0;   // of the tolerance, where it shows; before, the most
  std::string probe;  // where that was
  int64_t tokens = 0, step = -1;
  std::string failure;  // of a run of it, the last; empty: none
};

// No token that the shorter sequence has is masked otherwise: it need not be computed to be the
// same. A window that is one narrower shows at its own length, two before ShortestPrompt's.
bool CanShow(const Form& form, const ModelSpec& spec, int64_t tokens) {
  const Shows shows = form.fault->shows;
  if (shows != Shows::kPastWindow && shows != Shows::kSecondCallWindow) return true;
  return tokens >= ShortestPrompt(*form.fault, spec) - 2;
}

// The size of a window is the fault's own where the model names none: the edit invents one.
bool InventsWindow(const Fault& fault, const ModelSpec& spec) {
  return fault.shows == Shows::kPastWindow &&
         std::ranges::none_of(spec.layers, [](const LayerSpec& layer) {
           const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
           return a != nullptr && a->sliding_window;
         });
}

struct Moved {
  double times = 0;   // max |Δ| over the tolerance
  int64_t step = -1;  // the first beyond it
};

// At the steps that a verification compares: until the two choose different tokens.
Moved HowFar(const Evidence& evidence, const PromptTrace& trace, std::span<const float> logits) {
  const Evidence::Run& run = evidence.runs.front();
  Moved moved;
  for (size_t p = 0; p < run.steps.size(); ++p) {
    const double times = MaxAt(evidence, 0, p, logits) / run.tolerance;
    moved.times = std::max(moved.times, times);
    const int64_t step = std::max<int64_t>(run.steps[p], 0);
    if (moved.step < 0 && times > 1) moved.step = step;
    const auto row = logits.subspan(p * evidence.columns, evidence.columns);
    const auto best = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    const int32_t id =
        evidence.vocabulary.empty() ? static_cast<int32_t>(best) : evidence.vocabulary[best];
    const auto& greedy = trace.greedy;
    if (static_cast<size_t>(step) < greedy.size() && id != greedy[static_cast<size_t>(step)]) break;
  }
  return moved;
}

// The unedited reference on one probe.
struct Bench {
  Evidence evidence;
  PromptTrace trace;
  EditedReference unedited;
  bool measured = false;  // its noise; before, the tolerance is the least that there can be
};

Result<Bench> Prepare(const Model& model, Subject& reference, const Probe& probe, ThreadPool& pool,
                      const Progress& progress) {
  Bench bench{.unedited = Unedited(model)};
  LS_TRY(bench.trace, reference.Run(probe, progress));
  LS_TRY(bench.evidence, GatherEvidence(model.spec, {&bench.trace, 1}));
  bench.evidence.runs.front().tolerance = kToleranceFloor;
  LS_RETURN_IF_ERROR(Settle(bench.unedited, bench.evidence, pool));
  return bench;
}

// max |fp32 - fp64| over all ids, as a verification measures it.
Status MeasureNoise(Bench& bench, ThreadPool& pool) {
  bench.measured = true;
  Evidence::Run& run = bench.evidence.runs.front();
  LS_TRY(const std::vector<double> exact,
         LogitsOf<double>(bench.unedited, bench.evidence, 0, pool, -1, nullptr, nullptr, true));
  const size_t vocab = exact.size() / run.steps.size();
  for (size_t p = 0; p < run.steps.size(); ++p)
    run.noise = std::max(
        run.noise, MaxAbsDifference(std::span(exact).subspan(p * vocab, vocab),
                                    bench.trace.StepLogits(std::max<int64_t>(run.steps[p], 0))));
  if (!std::isfinite(run.noise))
    return InputError(
        "prompt {}: the reference's own logits are no numbers; `lockstep inspect` finds weights "
        "that are damaged",
        run.name);
  run.tolerance = Tolerance(run.noise);
  return {};
}

// Runs the form on the probe.
Status Inject(Form& form, Bench& bench, const Probe& probe, ThreadPool& pool) {
  int first = -1;
  const auto edited = WithEdit(bench.unedited, form.edit, first);
  if (!edited) return {};  // no logit changes
  const auto logits = LogitsOf<float>(*edited, bench.evidence, 0, pool, first, &bench.unedited);
  if (!logits) {
    form.failure = logits.error().message;
    return {};
  }
  Moved moved = HowFar(bench.evidence, bench.trace, *logits);
  // What stays within the least tolerance does within any: a run in fp64 is saved.
  if (moved.times > 1 && !bench.measured) {
    LS_RETURN_IF_ERROR(MeasureNoise(bench, pool));
    moved = HowFar(bench.evidence, bench.trace, *logits);
  }
  if (moved.times <= form.times) return {};
  form.times = moved.times;
  form.shown = moved.times > 1;
  form.step = moved.step;
  form.probe = probe.name;
  form.tokens = static_cast<int64_t>(probe.ids.size());
  return {};
}

// What was run altogether.
struct Extent {
  int64_t sequence = 0;  // tokens of the longest prompt with its steps
  int64_t steps = 0;     // the most
};

// Why forms that were not shown were not, after "cannot show on these prompts: " or alike.
std::string WhySilent(FaultPower& power, const ModelSpec& spec, std::span<const Form> forms,
                      const Extent& extent) {
  const Fault& fault = *power.fault;
  const int64_t needs = ShortestPrompt(fault, spec);
  const bool second_call =
      fault.shows == Shows::kSecondCall || fault.shows == Shows::kSecondCallWindow;
  if (needs > extent.sequence) {
    power.state = PowerState::kNeedsMore;
    power.needs_tokens = needs;
    const auto limit = ContextLimit(spec);
    return limit && needs > *limit
               ? fmt::format("needs a prompt of {} tokens, and the context ends at {}", needs,
                             *limit)
               : fmt::format("needs a prompt of {} tokens", needs);
  }
  if (second_call && extent.steps < 2) {
    power.state = PowerState::kNeedsMore;
    return "needs a second call: 2 greedy steps or more";
  }
  power.state = PowerState::kSilent;
  double most = 0;
  std::string failure;
  for (const Form& form : forms)
    if (!form.shown) {
      most = std::max(most, form.times);
      failure = form.failure;
    }
  if (most == 0 && !failure.empty()) return fmt::format("it could not be run: {}", failure);
  if (most == 0) return "it changes no logit that is compared";
  return fmt::format("it moves logits by at most {:.2g} of the tolerance", most);
}

FaultPower Conclude(const Fault& fault, const ModelSpec& spec, std::span<const Form> forms,
                    const Extent& extent) {
  FaultPower power{.fault = &fault, .forms = static_cast<int64_t>(forms.size())};
  if (forms.empty()) {
    power.sentence = fmt::format(
        "no prompt can show it on this checkpoint, which lacks what it needs: {}", fault.needs);
    return power;
  }
  power.forms_shown = std::ranges::count_if(forms, &Form::shown);
  const Form* told = nullptr;
  for (const Form& form : forms) {
    if (power.forms_shown > 0 && !form.shown) continue;
    const bool better = told == nullptr || (power.forms_shown > 0 ? form.times < told->times
                                                                  : form.times > told->times);
    if (better) told = &form;
  }
  power.times_tolerance = told->times;
  power.probe = told->probe;
  power.tokens = told->tokens;
  power.step = told->step;
  if (power.forms_shown == power.forms && InventsWindow(fault, spec)) {
    power.state = PowerState::kSomeFormsShow;
    power.sentence = fmt::format(
        "with a window of {}, invented, since the model names none; one of {} or more cannot show "
        "on these prompts",
        InventedWindow(spec), extent.sequence);
    return power;
  }
  if (power.forms_shown == power.forms) {
    power.state = PowerState::kShows;
    return power;
  }
  const std::string why = WhySilent(power, spec, forms, extent);
  if (power.forms_shown == 0) {
    power.sentence = fmt::format("cannot show on these prompts: {}", why);
    return power;
  }
  power.state = PowerState::kSomeFormsShow;
  power.sentence =
      fmt::format("{} of its {} forms; of the others: {}", power.forms_shown, power.forms, why);
  return power;
}

std::string Sentence(const PowerReport& report) {
  const int64_t applicable =
      static_cast<int64_t>(report.faults.size()) - report.Count(PowerState::kDoesNotApply);
  std::string out = fmt::format(
      "{} of {} known faults apply to this model; on these {} prompts of at most {} tokens {} show",
      applicable, report.faults.size(), report.probes, report.longest,
      report.Count(PowerState::kShows));
  if (const int64_t n = report.Count(PowerState::kSomeFormsShow))
    out += fmt::format(", {} in some of their forms", n);
  if (const int64_t n = report.Count(PowerState::kNeedsMore))
    out += fmt::format(", {} would on longer ones", n);
  if (const int64_t n = report.Count(PowerState::kSilent))
    out += fmt::format(", {} {} within the tolerance", n, n == 1 ? "stays" : "stay");
  return out;
}

// JSON has no infinity.
Json Number(double x) { return std::isfinite(x) ? Json(x) : Json("inf"); }

}  // namespace

std::string_view PowerStateName(PowerState state) {
  switch (state) {
    case PowerState::kShows:
      return "shows";
    case PowerState::kSomeFormsShow:
      return "some forms show";
    case PowerState::kNeedsMore:
      return "needs more";
    case PowerState::kSilent:
      return "silent";
    case PowerState::kDoesNotApply:
      return "does not apply";
  }
  return "";
}

int64_t PowerReport::Count(PowerState state) const {
  return std::ranges::count(faults, state, &FaultPower::state);
}

Result<PowerReport> MeasurePower(const Model& model, Subject& reference, std::vector<Probe> probes,
                                 ThreadPool& pool, const Progress& progress) {
  std::ranges::stable_sort(probes, {}, [](const Probe& probe) { return probe.ids.size(); });
  std::vector<Form> forms;  // those of a fault next to each other
  for (const Fault& fault : KnownFaults())
    for (Edit& edit : fault.edits(model.spec))
      forms.push_back({.fault = &fault, .edit = std::move(edit)});
  PowerReport report;
  report.probes = static_cast<int64_t>(probes.size());
  Extent extent;
  for (const Probe& probe : probes) {
    const auto tokens = static_cast<int64_t>(probe.ids.size());
    const int64_t sequence = tokens + std::max<int64_t>(probe.steps - 1, 0);
    report.longest = std::max(report.longest, tokens);
    std::vector<Form*> pending;
    for (Form& form : forms)
      if (!form.shown && CanShow(form, model.spec, sequence)) pending.push_back(&form);
    extent.sequence = std::max(extent.sequence, sequence);
    extent.steps = std::max(extent.steps, probe.steps);
    if (pending.empty()) continue;
    const std::string on = fmt::format("{} ({} tokens)", probe.name, tokens);
    LS_TRY(Bench bench, Prepare(model, reference, probe, pool,
                                [&](std::string_view doing, int64_t done, int64_t total) {
                                  return progress(fmt::format("{}: {}", on, doing), done, total);
                                }));
    for (size_t i = 0; i < pending.size(); ++i) {
      if (!progress(fmt::format("{}: {}", on, pending[i]->fault->id), static_cast<int64_t>(i),
                    static_cast<int64_t>(pending.size())))
        return tl::unexpected(Interrupted());
      LS_RETURN_IF_ERROR(Inject(*pending[i], bench, probe, pool));
    }
  }
  auto begin = forms.begin();
  for (const Fault& fault : KnownFaults()) {
    const auto end =
        std::find_if(begin, forms.end(), [&](const Form& form) { return form.fault != &fault; });
    report.faults.push_back(Conclude(fault, model.spec, {begin, end}, extent));
    begin = end;
  }
  report.sentence = Sentence(report);
  return report;
}

Json ToJson(const PowerReport& report) {
  Json faults = Json::array();
  for (const FaultPower& power : report.faults) {
    Json row = {{"id", power.fault->id},
                {"name", power.fault->name},
                {"precision", power.fault->precision},
                {"state", PowerStateName(power.state)},
                {"forms", power.forms},
                {"forms_shown", power.forms_shown}};
    if (power.forms > 0) row["times_tolerance"] = Number(power.times_tolerance);
    if (!power.probe.empty()) {
      row["prompt"] = power.probe;
      row["prompt_tokens"] = power.tokens;
      if (power.step >= 0) row["step"] = power.step;
    }
    if (power.needs_tokens > 0) row["needs_tokens"] = power.needs_tokens;
    if (!power.sentence.empty()) row["sentence"] = power.sentence;
    faults.push_back(std::move(row));
  }
  return {{"sentence", report.sentence},
          {"prompts", report.probes},
          {"longest", report.longest},
          {"faults", std::move(faults)}};
}

}  // namespace lockstep

// lockstep diagnose: why does the candidate differ from the reference?
#include "verify/diagnose.h"

#include <algorithm>

#include "cli/engine_flags.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "subjects/open_subject.h"
#include "subjects/reference_subject.h"

namespace lockstep {
namespace {

struct DiagnoseArgs {
  std::string reference, candidate;
  PromptOptions prompts;
  int64_t steps = 20, max_edits = 4;
  double seconds = 80;
  EngineFlags engine;
  bool only_known = false;
  bool json = false;
};

struct Outcome {
  Diagnosis diagnosis;
  std::string reference, candidate;  // names
  std::vector<std::string> notes;
};

// A word of the command line, quoted for a shell where it needs it.
std::string ShellWord(std::string_view word) {
  if (word.find_first_of(" '\"\\$`*?[](){}<>|&;!~#\n") == std::string_view::npos)
    return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// How long prompts begin: there attention sees little, and what is wrong elsewhere shows alone.
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

Result<Outcome> Work(const DiagnoseArgs& args) {
  VerifyOptions options;
  LS_TRY(options.prompts, args.prompts.Prompts());
  options.chat = args.prompts.Chat();
  options.steps = args.steps;
  if (const std::string given = args.engine.FirstGiven();
      !given.empty() && !NamesEngine(args.candidate))
    return UsageError(
        "{} is the engine's, and the candidate is not; write engine:PATH, or leave "
        "it out",
        given);
  ThreadPool pool(ThreadCount(args.engine.threads));
  LS_TRY(const auto opened, OpenSubject(args.reference, pool, args.engine.Options()));
  const auto* reference = dynamic_cast<const ReferenceSubject*>(opened.get());
  if (reference == nullptr)
    return UsageError(
        "{}: the reference of a diagnosis is edited and run many times: give a Hugging Face folder "
        "or a GGUF file",
        args.reference);
  LS_TRY(const auto candidate, OpenSubject(args.candidate, pool, args.engine.Options()));
  if (reference->vocab_size() != candidate->vocab_size())
    return InputError(
        "{}: has logits for {} tokens, the reference for {}; they are not the same model",
        args.candidate, candidate->vocab_size(), reference->vocab_size());
  CatchInterrupts();
  ProgressLine line;
  const Progress progress = [&](std::string_view doing, int64_t done, int64_t total) {
    line.Show(doing, done, total);
    return !WasInterrupted();
  };
  Outcome out{.reference = reference->Name(), .candidate = candidate->Name()};
  LS_TRY(ProbePlan plan, PlanProbes(*reference, *candidate, options));
  out.notes = plan.notes;
  for (size_t i = 0; i < plan.probes.size(); ++i)
    if (!plan.token_faults[i].empty())
      out.notes.push_back(
          fmt::format("different tokens, {}: {}", plan.probes[i].name, plan.token_faults[i]));
  if (candidate->Can().any_prompt) {
    const auto beginnings = Beginnings(plan.probes, candidate->Can().all_positions);
    plan.probes.insert(plan.probes.end(), beginnings.begin(), beginnings.end());
  }
  DiagnoseOptions diagnosis{.systematic = !args.only_known,
                            .max_edits = static_cast<int>(args.max_edits),
                            .seconds = args.seconds};
  std::vector<PromptTrace> runs;
  for (Probe& probe : plan.probes) {
    probe.all_positions |= candidate->Can().all_positions && !candidate->Can().any_prompt;
    LS_TRY(PromptTrace run, candidate->Run(probe, progress));
    double allowed = 0;
    if (candidate->Can().precision != Precision::kFull) {
      LS_TRY(allowed, candidate->MeasureRounding(run, 1e30, progress));
      allowed *= kRoundingMultiple;
    }
    diagnosis.allowed.push_back(allowed);
    runs.push_back(std::move(run));
  }
  LS_TRY(out.diagnosis, Diagnose(reference->model(), runs, diagnosis, pool, progress));
  return out;
}

std::string Named(const Hypothesis& hypothesis) {
  return hypothesis.id.empty() ? hypothesis.sentence
                               : fmt::format("{}: {}", hypothesis.id, hypothesis.sentence);
}

// The distance after each edit, from the unedited reference down.
std::string Steps(const Diagnosis& d, const std::vector<Cause>& causes) {
  using enum Table::Align;
  Table table({"the reference", "max |Δ|", "rms", "times the tolerance"},
              {kLeft, kRight, kRight, kRight});
  const auto add = [&](std::string name, const Distance& distance) {
    table.Add({std::move(name), Scientific(distance.max_abs), Scientific(distance.rms),
               fmt::format("{:.3g}", distance.times_tolerance)});
  };
  add("as it is", d.before);
  for (size_t i = 0; i < causes.size(); ++i)
    add(fmt::format("{} edit {}", i == 0 ? "with" : "and ", i + 1), causes[i].after);
  std::string out = table.Text();
  for (size_t i = 0; i < causes.size(); ++i) {
    out += fmt::format("\nedit {}: {}\n", i + 1, Named(causes[i].hypothesis));
    constexpr size_t kMost = 12;
    for (size_t c = 0; c < std::min(kMost, causes[i].changes.size()); ++c)
      out += fmt::format("  {}\n", ToString(causes[i].changes[c]));
    if (causes[i].changes.size() > kMost)
      out += fmt::format("  and {} more facts\n", causes[i].changes.size() - kMost);
    for (const WeightEdit& weight : causes[i].hypothesis.edit.weights)
      out += fmt::format("  weights: {}\n", ToString(weight));
  }
  return out;
}

std::string Text(const Outcome& outcome, const DiagnoseArgs& args) {
  const Diagnosis& d = outcome.diagnosis;
  std::string out =
      fmt::format("reference  {}\ncandidate  {}\n", outcome.reference, outcome.candidate);
  out += fmt::format(
      "compared   {} positions along the candidate's own tokens; noise {}, tolerance {}\n",
      d.positions, Scientific(d.noise), Scientific(d.tolerance));
  if (d.first) {
    const std::string where = d.first->step < 0
                                  ? fmt::format("position {} of the prompt", d.first->position)
                              : d.first->step == 0 ? "the end of the prompt"
                                                   : fmt::format("greedy step {}", d.first->step);
    out += fmt::format("differs    first on {} at {}: max |Δ| {}\n", d.first->prompt, where,
                       Scientific(d.first->max_abs));
    if (d.first->tap)
      out += fmt::format("           first inside the model at {}\n",
                         TapName(d.first->tap->tap, d.first->tap->layer));
  }
  const std::vector<Cause>& told = d.causes.empty() ? d.nearest : d.causes;
  if (!told.empty()) out += "\n" + Steps(d, told);
  if (!d.indistinguishable.empty()) {
    out += "\nwould give the same numbers on these prompts:\n";
    constexpr size_t kMost = 8;
    for (size_t i = 0; i < std::min(kMost, d.indistinguishable.size()); ++i)
      out += fmt::format("  for edit {}: {} ({})\n", d.indistinguishable[i].replaces + 1,
                         ToString(d.indistinguishable[i].hypothesis.edit),
                         Named(d.indistinguishable[i].hypothesis));
    if (d.indistinguishable.size() > kMost)
      out += fmt::format("  and {} more\n", d.indistinguishable.size() - kMost);
  }
  if (d.alternatives_tried < d.alternatives)
    out +=
        fmt::format("\n{} of {} other edits were tried in place of the causes, in the time given\n",
                    d.alternatives_tried, d.alternatives);
  if (d.runner_up)
    out += fmt::format("\nrunner-up for edit {}: {} leaves max |Δ| {}\n", d.runner_up->replaces + 1,
                       ToString(d.runner_up->hypothesis.edit),
                       Scientific(d.runner_up->distance.max_abs));
  for (const std::string& note : outcome.notes) out += fmt::format("note: {}\n", note);
  out += fmt::format("\n{}: {}\n", DiagnosisVerdictName(d.verdict), d.sentence);
  out += fmt::format("tried {} edits in {} comparisons, {}\n", d.hypotheses, d.evaluations,
                     HumanSeconds(d.seconds));
  if (!d.causes.empty())
    out += fmt::format("reproduce: lockstep verify {} {} --edit-reference {}\n",
                       ShellWord(args.reference), ShellWord(args.candidate),
                       ShellWord(ToString(d.edit)));
  return out;
}

int Run(const DiagnoseArgs& args) {
  const Result<Outcome> outcome = Work(args);
  if (!outcome) return Report(outcome.error(), args.json);
  if (args.json) {
    Json json = {{"reference", outcome->reference}, {"candidate", outcome->candidate}};
    json.update(ToJson(outcome->diagnosis));
    json["notes"] = outcome->notes;
    PrintJson(json);
  } else {
    Print(Text(*outcome, args));
  }
  return outcome->diagnosis.verdict == DiagnosisVerdict::kUnexplained ? kExitNo : kExitYes;
}

}  // namespace

void AddDiagnoseVerb(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("diagnose", "Why does the candidate differ from the reference?");
  auto args = std::make_shared<DiagnoseArgs>();
  verb->add_option("REFERENCE", args->reference,
                   "What is right: a Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("");
  verb->add_option("CANDIDATE", args->candidate,
                   "What is asked about: anything that `verify` takes")
      ->required()
      ->type_name("");
  args->prompts.AddTo(*verb);
  verb->add_option("--steps", args->steps, "Greedy tokens to compare after each prompt")
      ->check(WholeNumber(0, 100000))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--max-edits", args->max_edits, "The most causes to look for at once")
      ->check(WholeNumber(1, 10))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--seconds", args->seconds, "No new edit is tried after so long")
      ->check(RealNumber(0, 1e6))
      ->type_name("S")
      ->capture_default_str();
  verb->add_flag("--only-known", args->only_known,
                 "The catalogue of known faults alone, no generated edits");
  args->engine.AddTo(*verb);
  verb->add_flag("--json", args->json, "The verdict and all numbers as JSON");
  verb->footer(
      "Runs the candidate, then searches for the smallest set of edits of the reference that "
      "gives\n"
      "the candidate's numbers: known faults first, then edits generated from the model's own "
      "facts\n"
      "and weights, alone and together. Each edit's share is told, and what could not be told "
      "apart.\n"
      "Exit codes: 0 explained, or a match; 1 unexplained; 2 wrong usage; 3 a side is unusable.\n\n"
      "Example: lockstep diagnose models/gemma-3-270m exported-trace.safetensors");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep

// lockstep diagnose: why does the candidate differ from the reference?
#include "verify/diagnose.h"

#include <algorithm>

#include "cli/diagnosis_text.h"
#include "cli/engine_flags.h"
#include "cli/examine.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "subjects/open_subject.h"
#include "subjects/reference_subject.h"
#include "verify/report.h"

namespace lockstep {
namespace {

struct DiagnoseArgs {
  std::string reference, candidate;
  PromptOptions prompts;
  int64_t steps = 20, max_edits = 4, longest = kLongestProbe;
  double seconds = 80;
  int64_t timeout = 600;  // seconds
  EngineFlags engine;
  bool only_known = false;
  bool json = false;
};

struct Outcome {
  Examination examination;
  std::string reference, candidate;  // names
};

Result<Outcome> Work(const DiagnoseArgs& args) {
  ExamineOptions options;
  LS_TRY(options.verify.prompts, args.prompts.Prompts());
  options.verify.chat = args.prompts.Chat();
  options.verify.steps = args.steps;
  options.verify.longest = args.longest;
  options.diagnose.systematic = !args.only_known;
  options.diagnose.max_edits = static_cast<int>(args.max_edits);
  options.diagnose.seconds = args.seconds;
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
  LS_TRY(const auto candidate, OpenSubject(args.candidate, pool, args.engine.Options(),
                                           std::chrono::seconds(args.timeout)));
  CatchInterrupts();
  ProgressLine line;
  const Progress progress = [&](std::string_view doing, int64_t done, int64_t total) {
    line.Show(doing, done, total);
    return !WasInterrupted();
  };
  LS_TRY(Examination examination, Examine(*opened, reference, *candidate, options, pool, progress));
  return Outcome{.examination = std::move(examination),
                 .reference = reference->Name(),
                 .candidate = candidate->Name()};
}

std::string Text(const Outcome& outcome, const DiagnoseArgs& args) {
  const Examination& e = outcome.examination;
  std::string out =
      fmt::format("reference  {}\ncandidate  {}\n", outcome.reference, outcome.candidate);
  if (!e.base.empty()) out += fmt::format("base       the reference {}\n", e.base);
  for (const std::string& note : e.verification.notes) out += fmt::format("note: {}\n", note);
  if (e.diagnosis) return out + DiagnosisText(*e.diagnosis, args.reference, args.candidate, e.base);
  return out +
         fmt::format("\n{}: {}\n", VerdictName(e.verification.verdict), e.verification.sentence);
}

int Run(const DiagnoseArgs& args) {
  const Result<Outcome> outcome = Work(args);
  if (!outcome) return Report(outcome.error(), args.json);
  const Examination& e = outcome->examination;
  if (args.json) {
    Json json = {{"reference", outcome->reference}, {"candidate", outcome->candidate}};
    if (e.diagnosis) json.update(ToJson(*e.diagnosis));
    if (!e.base.empty()) json["base"] = e.base;
    json["verification"] = ToJson(e.verification);
    PrintJson(json);
  } else {
    Print(Text(*outcome, args));
  }
  if (e.diagnosis)
    return e.diagnosis->verdict == DiagnosisVerdict::kUnexplained ? kExitNo : kExitYes;
  return ExitCodeOf(e);
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
  AddLongest(*verb, args->longest);
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
  verb->add_option("--timeout", args->timeout,
                   "How long a program, a server or ONNX Runtime may take for one answer")
      ->check(WholeNumber(1, 7 * 24 * 3600))
      ->type_name("SECONDS")
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

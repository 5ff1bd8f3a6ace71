// lockstep verify: is the candidate the same model as the reference?
#include "verify/verify.h"

#include <algorithm>

#include "cli/engine_flags.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "subjects/open_subject.h"
#include "subjects/reference_subject.h"
#include "verify/report.h"

namespace lockstep {
namespace {

struct VerifyArgs {
  std::string reference, candidate, edit;
  PromptOptions prompts;
  int64_t steps = 20;
  EngineFlags engine;
  bool json = false;
  bool verbose = false;
};

std::vector<std::string> Row(const PromptComparison& p) {
  if (p.tolerance == 0)
    return {p.name, WithCommas(p.tokens),
            "-",    "-",
            "-",    "-",
            "-",    "-",
            "-",    std::string(VerdictName(p.verdict))};
  const StepComparison* worst = p.WorstStep();
  const std::string end = !p.steps.empty() && p.steps.front().step == 0
                              ? Scientific(p.steps.front().difference.max_abs)
                              : "-";
  std::string greedy = fmt::format("{}/{}", p.greedy_equal, p.greedy_compared);
  if (p.parting && p.parting->near_tie) greedy += " (near tie)";
  return {p.name,
          WithCommas(p.tokens),
          end,
          worst == nullptr
              ? "-"
              : fmt::format("{} @{}", Scientific(worst->difference.max_abs), worst->step),
          Scientific(p.noise),
          Scientific(p.tolerance),
          greedy,
          Scientific(p.max_kl()),
          fmt::format("{}/{}", p.top1_equal(), p.steps.size()),
          std::string(VerdictName(p.verdict))};
}

std::string StepTable(const PromptComparison& p) {
  using enum Table::Align;
  Table table({"step", "max |Δ|", "at id", "top-2 gap", "KL", "top-1"},
              {kRight, kRight, kRight, kRight, kRight, kLeft});
  for (const StepComparison& step : p.steps)
    table.Add({std::to_string(step.step), Scientific(step.difference.max_abs),
               std::to_string(step.difference.worst), Scientific(step.difference.a.gap),
               Scientific(step.difference.kl), step.difference.same_top1 ? "same" : "other"});
  return table.Text(2);
}

std::string Text(const Verification& v, bool verbose) {
  using enum Table::Align;
  std::string out = fmt::format("reference  {}\ncandidate  {}\n", v.reference, v.candidate);
  if (!v.prompts.empty()) {
    Table table({"prompt", "tokens", "prompt end |Δ|", "worst |Δ| @step", "noise", "tolerance",
                 "greedy", "max KL", "top-1", "verdict"},
                {kLeft, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kRight, kLeft});
    bool any = false;
    std::vector<std::string> roundings;
    std::vector<std::string> sources;
    for (const PromptComparison& prompt : v.prompts) {
      table.Add(Row(prompt));
      if (prompt.tolerance == 0) continue;
      any = true;
      if (prompt.rounding)
        roundings.push_back(fmt::format("{} {}", prompt.name, Scientific(*prompt.rounding)));
      std::string source(NoiseSourceName(prompt.noise_source));
      if (std::find(sources.begin(), sources.end(), source) == sources.end())
        sources.push_back(std::move(source));
    }
    out += "\n" + table.Text();
    out += "\n";
    if (any)
      out +=
          fmt::format("noise: max |fp32 - fp64| on the prompt, {}; tolerance: {} x noise + {:g}\n",
                      fmt::join(sources, " or "), kNoiseMultiple, kToleranceFloor);
    if (!roundings.empty())
      out += fmt::format(
          "rounding: what it does to the reference's own logits, measured: {}; allowed: tolerance "
          "+ {:g} x rounding\n",
          fmt::join(roundings, ", "), kRoundingMultiple);
    for (const PromptComparison& prompt : v.prompts) {
      const bool told = prompt.verdict != Verdict::kMatch || prompt.parting;
      if (told) out += fmt::format("{}: {}\n", prompt.name, prompt.sentence);
      if (verbose) out += fmt::format("{}:\n{}", prompt.name, StepTable(prompt));
    }
  }
  for (const std::string& note : v.notes) out += fmt::format("note: {}\n", note);
  out += fmt::format("\n{}: {}\n", VerdictName(v.verdict), v.sentence);
  return out;
}

Result<std::unique_ptr<Subject>> OpenReference(const VerifyArgs& args, ThreadPool& pool) {
  LS_TRY(const Edit edit, ParseEdit(args.edit));
  if (edit.empty()) return OpenSubject(args.reference, pool, args.engine.Options());
  if (NamesEngine(args.reference))
    return UsageError("--edit-reference edits what the reference runs: leave \"engine:\" out");
  LS_TRY(auto subject, ReferenceSubject::Open(WithoutPrefix(args.reference), pool,
                                              ReferenceSubject::Precision::kFloat, edit));
  return std::unique_ptr<Subject>(std::move(subject));
}

Result<Verification> Work(const VerifyArgs& args) {
  VerifyOptions options;
  LS_TRY(options.prompts, args.prompts.Prompts());
  options.chat = args.prompts.Chat();
  options.steps = args.steps;
  if (const std::string given = args.engine.FirstGiven();
      !given.empty() && !NamesEngine(args.reference) && !NamesEngine(args.candidate))
    return UsageError("{} is the engine's, and neither side is; write engine:PATH, or leave it out",
                      given);
  ThreadPool pool(ThreadCount(args.engine.threads));
  LS_TRY(const auto reference, OpenReference(args, pool));
  LS_TRY(const auto candidate, OpenSubject(args.candidate, pool, args.engine.Options()));
  CatchInterrupts();
  ProgressLine line;
  return Verify(*reference, *candidate, options,
                [&](std::string_view doing, int64_t done, int64_t total) {
                  line.Show(doing, done, total);
                  return !WasInterrupted();
                });
}

int Run(const VerifyArgs& args) {
  const Result<Verification> verification = Work(args);
  if (!verification) return Report(verification.error(), args.json);
  if (args.json)
    PrintJson(ToJson(*verification));
  else
    Print(Text(*verification, args.verbose));
  switch (verification->verdict) {
    case Verdict::kMatch:
    case Verdict::kPrecision:
    case Verdict::kQuantizedActivations:
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

}  // namespace

void AddVerifyVerb(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("verify", "Is the candidate the same model as the reference?");
  auto args = std::make_shared<VerifyArgs>();
  verb->add_option("REFERENCE", args->reference,
                   "What is right: a Hugging Face folder or a GGUF file, run by the reference\n"
                   "(engine:PATH: by the engine), a recorded trace, or an exported decoder: a GenAI\n"
                   "folder or a model.onnx, run by ONNX Runtime (onnx:PATH where the folder holds\n"
                   "both)")
      ->required()
      ->type_name("");
  verb->add_option("CANDIDATE", args->candidate, "What is asked about: likewise")
      ->required()
      ->type_name("");
  args->prompts.AddTo(*verb);
  verb->add_option("--steps", args->steps, "Greedy tokens to compare after each prompt")
      ->check(WholeNumber(0, 100000))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--edit-reference", args->edit,
                   "Edit the reference first: a candidate that then matches has this fault")
      ->type_name("EDIT");
  args->engine.AddTo(*verb);
  verb->add_flag("-v,--verbose", args->verbose, "Also a table of every step");
  verb->add_flag("--json", args->json, "The verdict and all numbers as JSON");
  verb->footer(
      "Both run by themselves, greedily and without penalties; their logits are compared while "
      "they\n"
      "choose the same tokens. The tolerance is a multiple of the rounding noise, measured on "
      "each\n"
      "prompt. A recorded trace brings its own prompts. The engine rounds more, unless\n"
      "--activations fp32 --kv fp32: what is beyond the tolerance and within what that rounding "
      "does\n"
      "to the reference, measured too, is the verdict \"precision\" or \"quantized activations\".\n"
      "Exit codes: 0 match, precision or quantized activations; 1 differs or different tokens; "
      "2 wrong\n"
      "usage; 3 a side is unusable, or the two have nothing in common to compare.\n\n"
      "Example: lockstep verify smollm2.gguf smollm2-trace.safetensors");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep

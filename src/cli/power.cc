// lockstep power: which of the known faults would a verification on these prompts have shown?
#include "cli/power.h"

#include "cli/examine.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "subjects/reference_subject.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

struct PowerArgs {
  std::string model;
  PromptOptions prompts;
  int64_t steps = 20, longest = kLongestProbe, threads = 0;
  bool json = false;
};

Result<ModelPower> Work(const PowerArgs& args) {
  VerifyOptions options;
  LS_TRY(options.prompts, args.prompts.Prompts());
  options.chat = args.prompts.Chat();
  options.steps = args.steps;
  options.longest = args.longest;
  ThreadPool pool(ThreadCount(args.threads));
  LS_TRY(const auto reference, ReferenceSubject::Open(args.model, pool));
  CatchInterrupts();
  ProgressLine line;
  return MeasureModelPower(reference->model(), *reference, options, pool,
                           [&](std::string_view doing, int64_t done, int64_t total) {
                             line.Show(doing, done, total);
                             return !WasInterrupted();
                           });
}

int Run(const PowerArgs& args) {
  const Result<ModelPower> power = Work(args);
  if (!power) return Report(power.error(), args.json);
  if (args.json)
    PrintJson(ToJson(*power));
  else
    Print(PowerText(*power));
  return kExitYes;
}

}  // namespace

Result<ModelPower> MeasureModelPower(const Model& model, Subject& reference,
                                     const VerifyOptions& options, ThreadPool& pool,
                                     const Progress& progress) {
  LS_TRY(ProbePlan plan, PlanProbes(reference, reference, options));
  LS_TRY(PowerReport report,
         MeasurePower(model, reference, std::move(plan.probes), pool, progress));
  return ModelPower{
      .report = std::move(report), .name = reference.Name(), .notes = std::move(plan.notes)};
}

std::string PowerText(const ModelPower& outcome) {
  using enum Table::Align;
  Table table({"fault", "what is wrong", "x tolerance", "shows on"}, {kLeft, kLeft, kRight, kLeft});
  Table others({"does not apply", "what is wrong", "which needs"}, {kLeft, kLeft, kLeft});
  for (const FaultPower& power : outcome.report.faults) {
    const std::string id(power.fault->id), name(power.fault->name);
    if (power.state == PowerState::kDoesNotApply) {
      others.Add({id, name, std::string(power.fault->needs)});
      continue;
    }
    std::string times = "-", where;
    if (power.forms_shown > 0) {
      times = fmt::format("{:.3g}", power.times_tolerance);
      where = fmt::format("{} ({} token{}) @{}", power.probe, power.tokens,
                          power.tokens == 1 ? "" : "s", power.step);
      if (power.fault->precision) where += ", a matter of precision";
    }
    if (!power.sentence.empty()) where += (where.empty() ? "" : "; ") + power.sentence;
    table.Add({id, name, times, where});
  }
  std::string out = fmt::format("model  {}\n\n{}\n", outcome.name, table.Text());
  out +=
      "x tolerance: how far the fault moves a logit, over what a verification allows; of several\n"
      "forms that show, the faintest. @: the greedy step at which it first shows, 0 is the end of\n"
      "the prompt.\n\n";
  if (outcome.report.Count(PowerState::kDoesNotApply) > 0)
    out += fmt::format("{}\nNo prompt can show these on this checkpoint.\n\n", others.Text());
  for (const std::string& note : outcome.notes) out += fmt::format("note: {}\n", note);
  return out + outcome.report.sentence + "\n";
}

Json ToJson(const ModelPower& power) {
  Json json = {{"model", power.name}};
  json.update(ToJson(power.report));
  json["notes"] = power.notes;
  return json;
}

void AddPowerVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "power", "Which known faults would a verification on these prompts have shown?");
  auto args = std::make_shared<PowerArgs>();
  verb->add_option("MODEL", args->model,
                   "The reference of a verification: a Hugging Face folder or a GGUF file")
      ->required()
      ->type_name("");
  args->prompts.AddTo(*verb);
  AddLongest(*verb, args->longest);
  verb->add_option("--steps", args->steps, "Greedy tokens that are compared after each prompt")
      ->check(WholeNumber(1, 100000))
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("-t,--threads", args->threads, "Threads; 0: as many as there are cores")
      ->check(WholeNumber(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag("--json", args->json, "The table and all numbers as JSON");
  verb->footer(
      "Puts each fault of the catalogue (lockstep inspect --faults) into the model, and runs the\n"
      "prompts of `lockstep verify` until one shows it: shortest first, with the same tolerance.\n"
      "What does not show is told with the reason: a longer prompt, or a fact that this model "
      "lacks.\n"
      "Exit codes: 0 done; 2 wrong usage; 3 the model is unusable.\n\n"
      "Example: lockstep power models/gemma-3-270m --longest 600");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep

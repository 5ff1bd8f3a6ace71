// lockstep trace: runs the reference, or the engine, and records ids, logits and intermediates.
#include "trace/trace.h"

#include <algorithm>

#include "base/nearest.h"
#include "cli/engine_flags.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "formats/describe.h"
#include "subjects/open_subject.h"
#include "subjects/reference_subject.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

struct TraceArgs {
  std::string path, out, dtype = "float32", taps, edit;
  PromptOptions prompts;
  EngineFlags engine;
  int64_t steps = 20;
  bool steps_only = false, hidden = false, no_noise = false, json = false, quiet = false;
};

Result<std::vector<TapPlace>> ParseTaps(const std::string& text, int64_t num_layers) {
  std::vector<TapPlace> places;
  if (text.empty()) return places;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty())
      return UsageError("--taps: {}: a name is empty between two commas, or at an end",
                        Quoted(text));
    if (name == "all") {
      for (const TapInfo& info : kTaps)
        if (info.tap != Tap::kLogits) places.push_back({info.tap, -1});
      continue;
    }
    if (name == TapName(Tap::kLogits))
      return UsageError("--taps: logits are recorded anyway; leave {} out", Quoted(name));
    // "q_rope" is that tap of every layer; "layers.3.q_rope" of one.
    const auto row = std::find_if(kTaps.begin(), kTaps.end(),
                                  [&](const TapInfo& info) { return info.name == name; });
    if (row != kTaps.end()) {
      places.push_back({row->tap, -1});
      continue;
    }
    const auto place = ParseTapName(name);
    if (place && place->layer >= num_layers)
      return UsageError("--taps: {}: the model has {} layers, 0 to {}", Quoted(name), num_layers,
                        num_layers - 1);
    if (!place) {
      std::vector<std::string> known;
      for (const TapInfo& info : kTaps)
        if (info.tap != Tap::kLogits) known.emplace_back(info.name);
      const std::string nearest = NearestName(name, known);
      return UsageError(
          "--taps: {} is no tap{}; known are: all, {} (of one layer: layers.3.q_rope)",
          Quoted(name), nearest.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", nearest),
          fmt::join(known, ", "));
    }
    places.push_back(*place);
  }
  return places;
}

// The engine has other flags, and no intermediates.
Status CheckFlags(const TraceArgs& args) {
  if (!NamesEngine(args.path)) {
    if (const std::string given = args.engine.FirstGiven(); !given.empty())
      return UsageError("{} is the engine's; write engine:PATH, or leave it out", given);
    return {};
  }
  for (const auto& [given, flag] : {std::pair{args.hidden, "--hidden"},
                                    {!args.taps.empty(), "--taps"},
                                    {!args.edit.empty(), "--edit"},
                                    {args.dtype != "float32", "--dtype"}})
    if (given)
      return UsageError(
          "{} is the reference's: the engine keeps no intermediates and computes in no other type; "
          "leave \"engine:\" or the flag out",
          flag);
  return {};
}

Result<Trace> Work(const TraceArgs& args) {
  LS_RETURN_IF_ERROR(CheckFlags(args));
  // Before minutes of work: a place to write to.
  const std::filesystem::path folder = std::filesystem::path(args.out).parent_path();
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    return UsageError("--out {}: there is no folder {}", args.out, folder.string());
  if (!args.out.ends_with(".safetensors"))
    return UsageError(
        "--out {}: the name must end in .safetensors (the prompts go into a .json "
        "file of the same name beside it)",
        args.out);
  ThreadPool pool(ThreadCount(args.engine.threads));
  std::unique_ptr<Subject> subject;
  int64_t num_layers = 0;
  if (NamesEngine(args.path)) {
    LS_TRY(subject, OpenSubject(args.path, pool, args.engine.Options()));
  } else {
    const auto precision = args.dtype == "float64" ? ReferenceSubject::Precision::kDouble
                                                   : ReferenceSubject::Precision::kFloat;
    LS_TRY(const Edit edit, ParseEdit(args.edit));
    LS_TRY(auto reference, ReferenceSubject::Open(WithoutPrefix(args.path), pool, precision, edit));
    num_layers = static_cast<int64_t>(reference->model().spec.layers.size());
    subject = std::move(reference);
  }
  VerifyOptions options;
  LS_TRY(options.prompts, args.prompts.Prompts());
  options.chat = args.prompts.Chat();
  LS_TRY(ProbePlan plan, PlanProbes(*subject, *subject, options));
  std::vector<Probe>& probes = plan.probes;
  LS_TRY(const auto taps, ParseTaps(args.taps, num_layers));
  if (!args.quiet) PrintNotes(subject->Notes());
  CatchInterrupts();
  ProgressLine line;
  Trace trace;
  trace.source = subject->Name();
  trace.metadata = {{"model", WithoutPrefix(args.path).filename().string()},
                    {"subject", fmt::format("lockstep " LOCKSTEP_VERSION " {}",
                                            NamesEngine(args.path) ? "engine" : "reference")},
                    {"compute", NamesEngine(args.path) ? args.engine.activations : args.dtype}};
  if (!args.edit.empty()) trace.metadata["edit"] = args.edit;
  for (size_t i = 0; i < probes.size(); ++i) {
    Probe& probe = probes[i];
    probe.steps = args.steps;
    probe.all_positions = !args.steps_only;
    probe.measure_noise = !args.no_noise;
    probe.hidden = args.hidden;
    probe.taps = taps;
    LS_TRY(PromptTrace run, subject->Run(probe, [&](std::string_view doing, int64_t done,
                                                    int64_t total) {
      line.Show(fmt::format("prompt {} of {} ({}): {}", i + 1, probes.size(), probe.name, doing),
                done, total);
      return !WasInterrupted();
    }));
    trace.prompts.push_back(std::move(run));
  }
  line.Show("writing", 0, 0);
  LS_RETURN_IF_ERROR(WriteTrace(args.out, trace));
  return trace;
}

int Run(const TraceArgs& args) {
  const Result<Trace> trace = Work(args);
  if (!trace) return Report(trace.error(), args.json);
  if (args.json) {
    Json list = Json::array();
    for (const PromptTrace& prompt : trace->prompts) {
      Json entry = {{"name", prompt.name}, {"ids", prompt.ids}, {"greedy", prompt.greedy}};
      if (prompt.greedy_text) entry["greedy_text"] = *prompt.greedy_text;
      if (prompt.noise) entry["noise"] = *prompt.noise;
      list.push_back(std::move(entry));
    }
    PrintJson({{"out", args.out}, {"prompts", std::move(list)}});
    return kExitYes;
  }
  using enum Table::Align;
  Table table({"prompt", "tokens", "greedy", "noise", "closest top-2"},
              {kLeft, kRight, kRight, kRight, kRight});
  for (const PromptTrace& prompt : trace->prompts)
    table.Add({prompt.name, WithCommas(static_cast<int64_t>(prompt.ids.size())),
               WithCommas(static_cast<int64_t>(prompt.greedy.size())),
               prompt.noise ? Scientific(*prompt.noise) : "-",
               prompt.min_top2_gap ? Scientific(*prompt.min_top2_gap) : "-"});
  Print(table.Text());
  Print(fmt::format("\nwritten: {}\n", args.out));
  return kExitYes;
}

}  // namespace

void AddTraceVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("trace", "Record ids, logits and intermediates of a run");
  auto args = std::make_shared<TraceArgs>();
  verb->add_option("PATH", args->path,
                   "A Hugging Face folder or a GGUF file (engine:PATH: what the engine gives)")
      ->required()
      ->type_name("");
  verb->add_option("-o,--out", args->out, "Where to write; a .json file is written beside it")
      ->required()
      ->type_name("FILE.safetensors");
  args->prompts.AddTo(*verb);
  verb->add_option("--steps", args->steps, "Greedy tokens after each prompt")
      ->check(WholeNumber(0, 100000))
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag("--steps-only", args->steps_only,
                 "Logits of the end of the prompt and of each step, not of every prompt position");
  verb->add_flag("--hidden", args->hidden, "Also the hidden states, as transformers reports them");
  verb->add_option("--taps", args->taps,
                   "Also intermediates of the prompt: all, or names such as q_rope,layers.0.mlp")
      ->type_name("NAMES");
  verb->add_option("--dtype", args->dtype, "Compute in float32 or float64")
      ->check([](const std::string& text) -> std::string {
        if (text == "float32" || text == "float64") return "";
        return fmt::format("expected float32 or float64, found {}", Quoted(text));
      })
      ->type_name("TYPE")
      ->capture_default_str();
  verb->add_option("--edit", args->edit,
                   "Run an edited model: facts, run or weights, such as \"final_norm.eps=1e-5\"")
      ->type_name("EDIT");
  verb->add_flag("--no-noise", args->no_noise,
                 "Do not measure the rounding noise (a second run, in fp64)");
  args->engine.AddTo(*verb);
  verb->add_flag("-q,--quiet", args->quiet, "No notes");
  verb->add_flag("--json", args->json, "A summary as JSON");
  verb->footer(
      "Without -p, --prompts or --ids the five built-in prompts are run (without a tokenizer, "
      "three\n"
      "lists of ids). docs/formats/trace.md\n"
      "describes the file; `lockstep verify` reads it on either side.\n\n"
      "Example: lockstep trace smollm2.gguf -p \"Hello\" --hidden --out hello.safetensors");
  verb->callback([args, &action] { action = [args] { return Run(*args); }; });
}

}  // namespace lockstep

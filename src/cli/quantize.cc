// lockstep quantize: a model in fewer bits: chosen by what they do, written as lockstep export
// writes it, and measured beside the model and a rival. Also the policy for experts.
#include <algorithm>
#include <memory>

#include "cli/bit_budget.h"
#include "cli/calibration_texts.h"
#include "cli/exit_code.h"
#include "cli/export_args.h"
#include "cli/options.h"
#include "cli/quantization_report.h"
#include "cli/terminal.h"
#include "cli/timed_progress.h"
#include "cli/verb.h"
#include "export/data_file.h"
#include "quant/qmoe_policy.h"
#include "reference/interpreter.h"
#include "subjects/text_side.h"

namespace lockstep {
namespace {

constexpr size_t kBudgetTokens = 128;

struct QuantizeArgs {
  ExportArgs exported;
  std::string budget, plot, rival, text;
  double max_kl = 0;
  bool report_alone = false, unreported = false;
  bool has_target() const { return !budget.empty() || max_kl > 0; }
};

ExportProgress Shown(TimedProgress& progress) {
  return [&](std::string_view doing, int64_t done, int64_t total) {
    return progress.Show(doing, done, total);
  };
}

Result<std::vector<int32_t>> TokensToMeasure(const Model& model, const std::string& file) {
  const TextModel text = LoadTextModelOrNote(model.checkpoint);
  if (!text.tokenizer)
    return InputError("the model has no tokenizer, so that no text can be read by it");
  std::string words;
  if (file.empty())
    for (const std::string_view one : CalibrationTexts()) words.append(one).append("\n");
  else {
    LS_TRY(words, ReadGivenText(file));
  }
  LS_TRY(auto ids, EncodeText(text, words, true));
  if (ids.size() < 2) return InputError("the text to read has fewer than two tokens");
  // Of the built-in text all kinds are seen: pieces from all over it.
  const size_t limit = std::min<size_t>(
      kBudgetTokens, static_cast<size_t>(ContextLimit(model.spec).value_or(kBudgetTokens)));
  if (ids.size() > limit) {
    std::vector<int32_t> some;
    constexpr size_t kPieces = 4;
    const size_t piece = limit / kPieces;
    for (size_t i = 0; i < kPieces; ++i) {
      const size_t from = i * (ids.size() - piece) / (kPieces - 1);
      some.insert(some.end(), ids.begin() + static_cast<std::ptrdiff_t>(from),
                  ids.begin() + static_cast<std::ptrdiff_t>(from + piece));
    }
    ids = std::move(some);
  }
  return ids;
}

Status WritePlot(const BitBudget& budget, const QuantizeArgs& args) {
  const std::filesystem::path path = args.plot;
  const std::string model =
      std::filesystem::path(args.exported.model).lexically_normal().filename().string();
  return WriteSmallFile(
      path, path.extension() == ".svg" ? FrontierSvg(budget, true) : BitBudgetHtml(budget, model));
}

Status Check(const QuantizeArgs& args) {
  LS_RETURN_IF_ERROR(CheckExport(args.exported));
  if (!args.budget.empty()) LS_RETURN_IF_ERROR(ParseBudget(args.budget).transform([](double) {}));
  if (!args.budget.empty() && args.max_kl > 0)
    return UsageError("--budget and --max-kl both say how large it may be; give one of them");
  if (args.has_target() && args.exported.options.codes.asymmetric)
    return UsageError(
        "--asymmetric: bits are chosen for blocks without zero points; leave it out "
        "with --budget and --max-kl");
  if (args.has_target() && args.exported.options.precision != "int4")
    return UsageError(
        "--precision {}: with --budget and --max-kl each matrix gets its own; leave "
        "it out",
        args.exported.options.precision);
  if (!args.plot.empty() && !args.has_target())
    return UsageError("--plot: shows what --budget or --max-kl chose from; give one of them");
  if (args.report_alone && (args.has_target() || args.unreported))
    return UsageError(
        "--report measures a folder that is there; it goes with neither --budget, "
        "--max-kl nor --no-report");
  if (!args.plot.empty() && std::filesystem::exists(args.plot))
    return UsageError("--plot {}: exists; give a new file", args.plot);
  return {};
}

Status PrintReport(const QuantizeArgs& args, const Model& model) {
  std::string text;
  if (!args.text.empty()) {
    LS_TRY(text, ReadGivenText(args.text));
  }
  ThreadPool pool(ThreadCount(args.exported.threads));
  TimedProgress progress;
  const auto report =
      ReportQuantization(model, args.exported.out, args.rival, text, pool, Shown(progress));
  progress.Clear();
  if (!report) return tl::unexpected(report.error());
  if (args.exported.json)
    PrintJson(ToJson(*report));
  else
    Print(QuantizationText(*report));
  return {};
}

int Run(const QuantizeArgs& args) {
  const bool json = args.exported.json;
  if (const Status fine = Check(args); !fine) return Report(fine.error(), json);
  const auto model = LoadModel(std::filesystem::path(args.exported.model));
  if (!model) return Report(model.error(), json);
  CatchInterrupts();
  ExportArgs exported = args.exported;
  exported.loaded = &*model;
  CodePlan plan;
  if (args.has_target()) {
    const auto ids = TokensToMeasure(*model, args.exported.calibration);
    if (!ids) return Report(ids.error(), json);
    BitTarget target;
    if (!args.budget.empty()) target.bits_per_weight = *ParseBudget(args.budget);
    if (args.max_kl > 0) target.kl = args.max_kl;
    ThreadPool pool(ThreadCount(args.exported.threads));
    TimedProgress progress;
    const auto budget = MeasureBitBudget(*model, target, *ids, pool, Shown(progress));
    progress.Clear();
    if (!budget) return Report(budget.error(), json);
    plan = budget->Plan(*model);
    exported.plan = &plan;
    if (json)
      PrintJson(ToJson(*budget));
    else
      Print(BitBudgetText(*budget) + "\n");
    if (!args.plot.empty())
      if (const Status written = WritePlot(*budget, args); !written)
        return Report(written.error(), json);
  }
  int code = kExitYes;
  if (!args.report_alone) code = RunExport(exported);
  if (code != kExitYes && code != kExitNo) return code;
  if (args.unreported) return code;
  // What was written stands, also where it cannot be measured.
  if (!args.report_alone && !LoadTextModelOrNote(model->checkpoint).tokenizer) {
    if (!json) Print("\nnot measured: the model has no tokenizer\n");
    return code;
  }
  if (const Status reported = PrintReport(args, *model); !reported)
    return Report(reported.error(), json);
  return code;
}

}  // namespace

void AddQuantizeVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "quantize", "Write a model in fewer bits, and measure what that does to it");
  auto args = std::make_shared<QuantizeArgs>();
  ExportArgs& exported = args->exported;
  exported.to = "genai";
  exported.options.precision = "int4";
  verb->add_option("MODEL", exported.model, "The checkpoint: a Hugging Face folder or a GGUF file")
      ->type_name("");
  verb->add_option("OUT", exported.out, "The folder to write (--report: to measure)")
      ->type_name("");
  static constexpr const char* kHelp =
      "Print the policy for quantized experts (QMoE) as a page: how each width, granularity and "
      "execution provider is written, what was proved, and what takes the place of the rest";
  const CLI::Option* policies = verb->add_flag("--policies", kHelp);
  verb->add_option("--precision", exported.options.precision, "int4 or int8, for all matrices")
      ->check(CLI::IsMember({"int4", "int8"}))
      ->type_name("TYPE")
      ->capture_default_str();
  verb->add_option("--budget", args->budget,
                   "Choose each matrix' bits by its measured effect: at most so many bits per "
                   "weight, scales included (4.5bpw)")
      ->type_name("BITS");
  verb->add_option("--max-kl", args->max_kl,
                   "The same: the smallest whose output is so near on the text that is read")
      ->check(CLI::Range(1e-6, 100.0))
      ->type_name("KL");
  verb->add_option("--plot", args->plot,
                   "Size against KL of what could be chosen: a .svg, or else a page")
      ->type_name("FILE");
  verb->add_option("--method", exported.method,
                   "How codes are chosen (default: gptq for int4, mse for int8)" + MethodsHelp())
      ->type_name("NAME");
  verb->add_option("--calibrate", exported.calibration,
                   "The text that the model reads first (default: a built-in one)")
      ->type_name("FILE");
  verb->add_option("--block", exported.options.codes.block, "Weights under one scale")
      ->check(CLI::IsMember({"16", "32", "64", "128", "256"}))
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag("--asymmetric", exported.options.codes.asymmetric, "A zero point for each block");
  verb->add_option("--rival", args->rival,
                   "Another file of the same model, to be measured beside it: a GGUF, a checkpoint "
                   "or an ONNX folder")
      ->type_name("PATH");
  verb->add_option("--text", args->text,
                   "The text that the report is measured on (default: a built-in one, other than "
                   "what is read first)")
      ->type_name("FILE");
  verb->add_flag("--report", args->report_alone, "Write nothing: measure OUT, which is there");
  verb->add_flag("--no-report", args->unreported, "Measure nothing after writing");
  verb->add_flag("--force", exported.force, "Replace an earlier export");
  verb->add_flag("--no-verify", exported.unverified, "Neither audit nor run what was written");
  verb->add_option("--threads", exported.threads, "Threads (0: all cores)")
      ->check(WholeNumber(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag("--json", exported.json, "Each part as a JSON object of its own");
  verb->footer(
      "Writes what `lockstep export --to genai --precision int4` writes (docs/export.md), then\n"
      "reports the error of each layer's weights and, on a text that nothing was chosen by, KL,\n"
      "perplexity and greedy agreement. Exit codes as of lockstep export.\n\n"
      "Example: lockstep quantize smollm2-135m out --budget 4.6bpw --plot frontier.html");
  verb->callback([args, policies, &action] {
    action = [args, policies] {
      if (policies->count() > 0) {
        Print(QMoePage());
        return static_cast<int>(kExitYes);
      }
      if (args->exported.model.empty() || args->exported.out.empty())
        return Report({.code = ErrorCode::kUsage,
                       .message = "quantize needs a model and a folder to write: lockstep quantize "
                                  "MODEL OUT (or --policies)"},
                      args->exported.json);
      return Run(*args);
    };
  });
}

}  // namespace lockstep

// lockstep export: a checkpoint in a form that another runtime reads, proved before it is called
// done.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "base/nearest.h"
#include "base/quoted.h"
#include "base/readable_json.h"
#include "cli/audit_text.h"
#include "cli/calibration.h"
#include "cli/examine.h"
#include "cli/export_args.h"
#include "cli/export_checkpoint.h"
#include "cli/export_record.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/timed_progress.h"
#include "cli/verb.h"
#include "cli/verification_text.h"
#include "engine/content_hash.h"
#include "export/data_file.h"
#include "export/genai/export_genai.h"
#include "export/output_folder.h"
#include "export/precision.h"
#include "ort/ort_runtime.h"
#include "subjects/onnx_subject.h"
#include "subjects/open_subject.h"
#include "verify/report.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// What a model can be exported to. A row gives the word of --to and what is written.
struct ExportTarget {
  std::string_view name, description;
  decltype(&ExportGenAi) write;
};
constexpr ExportTarget kTargets[] = {
    {"genai", "a folder for ONNX Runtime GenAI", &ExportGenAi},
};
constexpr std::string_view kProviders[] = {"cpu", "cuda"};

std::vector<std::string_view> PrecisionNames() {
  std::vector<std::string_view> names;
  for (const ExportPrecision& precision : ExportPrecisions()) names.push_back(precision.name);
  return names;
}

// Of so many prompts the answers are kept for `lockstep verify FOLDER`.
constexpr size_t kRecordedPrompts = 5;

struct Exported {
  ExportReport report;
  std::optional<AuditReport> audit;
  std::optional<Verification> verification;
  std::vector<PromptTrace> answers;  // what the folder answered while it was verified
  std::string not_run;               // why ONNX Runtime was not asked: a sentence

  bool right() const {
    return (!audit || audit->healthy()) &&
           (!verification || ExitCodeOf(verification->verdict) == kExitYes);
  }
};

template <typename Names>
Status CheckWord(std::string_view flag, const std::string& word, const Names& names) {
  std::vector<std::string> known;
  for (const auto& name : names) known.emplace_back(name);
  if (std::find(known.begin(), known.end(), word) != known.end()) return {};
  const std::string nearest = NearestName(word, known);
  return UsageError("{} {}: expected {}{}", flag, Quoted(word), fmt::join(known, ", "),
                    nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest));
}

Status CheckTarget(const std::string& name) {
  std::vector<std::string_view> names = CheckpointTargetNames();
  for (const ExportTarget& target : kTargets) names.push_back(target.name);
  return CheckWord("--to", name, names);
}

const ExportTarget& TargetNamed(std::string_view name) {
  return *std::find_if(std::begin(kTargets), std::end(kTargets),
                       [&](const ExportTarget& target) { return target.name == name; });
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// The folder had another name while it was verified.
void Rename(Verification& verification, const std::string& from, const std::string& to) {
  Replace(verification.candidate, from, to);
  Replace(verification.sentence, from, to);
  for (std::string& note : verification.notes) Replace(note, from, to);
  for (PromptComparison& prompt : verification.prompts) Replace(prompt.sentence, from, to);
}

// Static checks, and the folder's logits against the checkpoint's where ONNX Runtime is there.
Status Prove(const ExportArgs& args, const fs::path& folder, ThreadPool& pool, Exported& out) {
  LS_TRY(auto reference, ReferenceSubject::Open(args.model, pool));
  const auto runtime = OrtRuntime::Load();
  const bool foreign = args.options.execution_provider != "cpu";
  if (foreign || !runtime) {
    out.not_run = foreign ? fmt::format("it is made for {}, and only the CPU is at hand",
                                        args.options.execution_provider)
                          : runtime.error().message;
    LS_TRY(const OnnxModel model, OnnxModel::Open(folder));
    LS_TRY(out.audit, Audit(reference->model(), model));
    return {};
  }
  ExamineOptions options;
  options.verify.longest = args.longest;
  options.diagnoses = false;
  options.keeps = kRecordedPrompts;
  ProgressLine line;
  const auto examine = [&]() -> Result<Examination> {
    LS_TRY(const auto candidate, OnnxSubject::Open(folder, pool.num_threads()));
    return Examine(*reference, reference.get(), *candidate, options, pool,
                   [&](std::string_view doing, int64_t done, int64_t total) {
                     line.Show(fmt::format("verifying: {}", doing), done, total);
                     return !WasInterrupted();
                   });
  };
  Result<Examination> examination = examine();
  if (!examination && IsInterrupted(examination.error()))
    return tl::unexpected(std::move(examination).error());
  if (examination) {
    out.audit = std::move(examination->audit);
    out.verification = std::move(examination->verification);
    out.answers = std::move(examination->answers);
  } else {
    out.verification = FailedVerification(reference->Name(), folder.string(), examination.error());
  }
  Rename(*out.verification, folder.string(), args.out);
  return {};
}

// Hashing reads every byte once more; of a larger checkpoint the names and sizes must do.
constexpr uint64_t kMostHashed = uint64_t{4} << 30;

Json ManifestOf(const ExportArgs& args, const ExportOptions& options, const Model& model,
                const std::vector<RecordedFile>& files, const Exported& exported) {
  Json json = ExportManifest(model, args.to, options, exported.report);
  json["lockstep"] = LOCKSTEP_VERSION;
  json["files"] = FilesJson(files);
  if (!exported.answers.empty()) json["answers"] = PromptsJson(ShortAnswers(exported.answers));
  uint64_t bytes = 0;
  for (const auto& file : model.checkpoint.files) bytes += file->bytes().size();
  for (size_t i = 0; i < model.checkpoint.files.size() && bytes <= kMostHashed; ++i)
    if (const auto hash = HashOfFile(model.checkpoint.files[i]->path()))
      json["source"]["files"][i]["xxh3_128_of_4mib_pieces"] = Hex(*hash);
  if (exported.audit) {
    Json& audit = json["audit"] = {{"healthy", exported.audit->healthy()}};
    audit["findings"] = Json::array();
    for (const Finding& finding : exported.audit->findings)
      audit["findings"].push_back(finding.sentence);
    audit["notes"] = exported.audit->notes;
  }
  if (!exported.verification) {
    json["verification"] = nullptr;
    json["not_verified"] = args.unverified ? "asked not to (--no-verify)" : exported.not_run;
    return json;
  }
  const Verification& verification = *exported.verification;
  Json& record = json["verification"] = Json::object();
  record["verdict"] = VerdictName(verification.verdict);
  record["sentence"] = verification.sentence;
  for (const PromptComparison& prompt : verification.prompts)
    record["prompts"].push_back({{"name", prompt.name},
                                 {"tokens", prompt.tokens},
                                 {"verdict", VerdictName(prompt.verdict)},
                                 {"noise", prompt.noise},
                                 {"tolerance", prompt.tolerance},
                                 {"max_abs", prompt.max_abs()},
                                 {"greedy_compared", prompt.greedy_compared},
                                 {"greedy_equal", prompt.greedy_equal}});
  return json;
}

// Few bits are chosen by what they do. Of 8 there is little to choose.
Status ChooseMethod(const ExportArgs& args, CodeMethod& method) {
  const ExportPrecision* precision = FindExportPrecision(args.options.precision);
  if (args.method.empty()) {
    method = precision->bits <= 4 ? CodeMethod::kFeedback : CodeMethod::kSquaredError;
  } else {
    std::vector<std::string_view> names;
    for (const CodeMethodInfo& info : CodeMethods()) names.push_back(info.name);
    LS_RETURN_IF_ERROR(CheckWord("--method", args.method, names));
    method = std::ranges::find(CodeMethods(), args.method, &CodeMethodInfo::name)->method;
  }
  if (precision->bits == 0 && (!args.method.empty() || !args.calibration.empty()))
    return UsageError("--precision {} has no codes to choose; leave out --method and --calibrate",
                      precision->name);
  if (!args.calibration.empty() && !IsCalibrated(method))
    return UsageError("--method {} reads no text; leave out --calibrate, or use awq or gptq",
                      args.method.empty() ? "mse" : args.method);
  return {};
}

// What an export that was killed may be gone on from by: what the bytes of the folder follow from
// besides the model. Empty: by nothing, since codes follow from those of the layers before, or from
// bits that were measured.
std::string ResumeKeyOf(const Model& model, const ExportArgs& args, const ExportOptions& options,
                        const std::string& text) {
  const CodeOptions& codes = options.codes;
  const bool coded = FindExportPrecision(options.precision)->bits > 0;
  if (args.plan != nullptr || (coded && codes.method == CodeMethod::kFeedback)) return {};
  Json how = {{"lockstep", LOCKSTEP_VERSION},
              {"target", args.to},
              {"precision", options.precision},
              {"execution_provider", options.execution_provider},
              {"block", codes.block},
              {"zero_points", codes.asymmetric},
              {"method", CodeMethods()[static_cast<size_t>(codes.method)].name},
              {"text", Hex(HashOf(std::as_bytes(std::span(text))))}};
  if (codes.accuracy_level) how["accuracy_level"] = *codes.accuracy_level;
  return ResumeKey(model, how);
}

Result<Exported> Work(const ExportArgs& args) {
  LS_RETURN_IF_ERROR(CheckExport(args));
  if (HoldsOnnx(args.model))
    return UsageError(
        "{}: holds an ONNX graph; make a checkpoint of it (--to safetensors) and export that",
        args.model);
  ExportOptions options = args.options;
  LS_RETURN_IF_ERROR(ChooseMethod(args, options.codes.method));
  options.plan = args.plan;
  std::string text;
  if (!args.calibration.empty()) {
    LS_TRY(text, ReadGivenText(args.calibration));
  }
  std::optional<Model> own;
  if (args.loaded == nullptr) {
    LS_TRY(own, LoadModel(fs::path(args.model)));
  }
  const Model& model = own ? *own : *args.loaded;
  LS_TRY(OutputFolder folder,
         OutputFolder::Create(args.out, {.force = args.force,
                                         .source = args.model,
                                         .resume_key = ResumeKeyOf(model, args, options, text)}));
  if (const std::string resumed = folder.Resumed(); !resumed.empty() && !args.json)
    PrintNotes({resumed});
  CatchInterrupts();
  ThreadPool pool(ThreadCount(args.threads));
  Exported out;
  std::unique_ptr<Calibrator> calibrator;
  std::string not_calibrated;
  {
    TimedProgress progress;
    const ExportProgress show = [&](std::string_view doing, int64_t done, int64_t total) {
      return progress.Show(doing, done, total);
    };
    const bool codes = FindExportPrecision(options.precision)->bits > 0;
    if (codes && IsCalibrated(options.codes.method)) {
      auto made = Calibrator::Read(model, options.codes.method, text, pool, show);
      if (made) {
        calibrator = *std::move(made);
        options.calibration = calibrator.get();
      } else if (IsInterrupted(made.error()) || !text.empty()) {
        return tl::unexpected(std::move(made).error());
      } else {
        not_calibrated = fmt::format("not calibrated: {}", made.error().message);
      }
    }
    LS_TRY(out.report, TargetNamed(args.to).write(
                           model, options, folder.path(),
                           [&](uint64_t bytes) { return folder.CheckRoom(bytes); }, pool, show));
  }
  if (calibrator != nullptr)
    for (std::string& note : calibrator->Notes()) out.report.notes.push_back(std::move(note));
  if (!not_calibrated.empty()) out.report.notes.push_back(not_calibrated);
  if (!args.unverified) LS_RETURN_IF_ERROR(Prove(args, folder.path(), pool, out));
  folder.EndResuming();
  LS_TRY(const auto files, RecordFiles(folder.path()));
  LS_RETURN_IF_ERROR(WriteSmallFile(folder.path() / kManifestName,
                                    ReadableJson(ManifestOf(args, options, model, files, out))));
  if (WasInterrupted()) return ExportInterrupted();
  LS_RETURN_IF_ERROR(folder.PutInPlace());
  return out;
}

std::string Text(const ExportArgs& args, const Exported& exported) {
  std::string out = fmt::format("written: {} ({}, {}, {} bytes of weights)\n", args.out, args.to,
                                args.options.precision, exported.report.bytes);
  for (const std::string& note : exported.report.notes) out += fmt::format("  {}\n", note);
  if (exported.audit && !exported.audit->findings.empty())
    out += "\naudited\n" + AuditText(*exported.audit, false);
  if (exported.verification)
    out += "\n" + VerificationText(*exported.verification, false);
  else if (!args.unverified)
    out += fmt::format("\n{}not run: {}\n",
                       exported.right()
                           ? "audited: weights, constants and configuration are the checkpoint's\n"
                           : "",
                       exported.not_run);
  else
    out += "\nnot verified\n";
  return out;
}

}  // namespace

Status CheckExport(const ExportArgs& args) {
  LS_RETURN_IF_ERROR(CheckWord("--precision", args.options.precision, PrecisionNames()));
  LS_RETURN_IF_ERROR(CheckWord("--ep", args.options.execution_provider, kProviders));
  CodeMethod method;
  return ChooseMethod(args, method);
}

Result<std::string> ReadGivenText(const std::string& file) {
  LS_TRY(std::string text, ReadTextFile(file, size_t{16} << 20));
  LS_RETURN_IF_ERROR(CheckUtf8(text, file));
  if (text.empty()) return UsageError("{}: is empty; give a text to read", file);
  return text;
}

std::string MethodsHelp() {
  std::string out;
  for (const CodeMethodInfo& method : CodeMethods())
    out += fmt::format("\n{}: {}", method.name, method.description);
  return out;
}

int RunExport(const ExportArgs& args) {
  const Result<Exported> exported = Work(args);
  if (!exported) return Report(exported.error(), args.json);
  if (args.json) {
    Json json = Json::object();
    json["written"] = args.out;
    json["target"] = args.to;
    json["precision"] = args.options.precision;
    json["weight_bytes"] = exported->report.bytes;
    json["notes"] = exported->report.notes;
    if (exported->audit) json["audit"] = AuditJson(*exported->audit);
    if (exported->verification) json["verification"] = ToJson(*exported->verification);
    if (!exported->not_run.empty()) json["not_run"] = exported->not_run;
    PrintJson(json);
  } else {
    Print(Text(args, *exported));
  }
  return exported->right() ? kExitYes : kExitNo;
}

void AddExportVerb(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "export", "Write a checkpoint in the form of another runtime, and prove that it is the same");
  auto args = std::make_shared<ExportArgs>();
  verb->add_option("MODEL", args->model,
                   "The checkpoint: a Hugging Face folder or a GGUF file; for gguf and safetensors "
                   "also a folder with an ONNX graph")
      ->required()
      ->type_name("");
  verb->add_option("OUT", args->out, "The folder to write; it must not exist")
      ->required()
      ->type_name("");
  std::string targets = "What to write";
  for (const ExportTarget& target : kTargets)
    targets += fmt::format("\n{}: {}", target.name, target.description);
  targets += CheckpointTargetsHelp();
  verb->add_option("--to", args->to, targets)->required()->type_name("TARGET");
  std::string precisions = "Of the weights";
  for (const ExportPrecision& precision : ExportPrecisions())
    precisions += fmt::format("\n{}: {}", precision.name, precision.description);
  precisions += CheckpointPrecisionsHelp();
  verb->add_option("--precision", args->options.precision, precisions)
      ->type_name("TYPE")
      ->capture_default_str();
  std::vector<const CLI::Option*> of_graphs, of_gguf;
  of_graphs.push_back(verb->add_option("--ep", args->options.execution_provider,
                                       fmt::format("The execution provider it is made for: {}",
                                                   fmt::join(kProviders, ", ")))
                          ->type_name("NAME")
                          ->capture_default_str());
  CodeOptions& codes = args->options.codes;
  of_graphs.push_back(
      verb->add_option("--block", codes.block, "int4, int8: weights under one scale")
          ->check(CLI::IsMember({"16", "32", "64", "128", "256"}))
          ->type_name("N")
          ->capture_default_str());
  of_graphs.push_back(
      verb->add_flag("--asymmetric", codes.asymmetric,
                     "int4, int8: a zero point for each block (default: the middle code)"));
  of_graphs.push_back(
      verb->add_option("--method", args->method,
                       "int4, int8: how codes are chosen (default: gptq for int4, mse for int8)" +
                           MethodsHelp())
          ->type_name("NAME"));
  of_graphs.push_back(
      verb->add_option("--calibrate", args->calibration,
                       "awq, gptq: a text that the model reads first (default: a built-in one in "
                       "several languages)")
          ->type_name("FILE"));
  of_graphs.push_back(
      verb->add_option(
              "--accuracy-level", codes.accuracy_level,
              "int4, int8: MatMulNBits' accuracy_level; 4 lets the CPU round activations to "
              "int8 (default: 4 for cpu, 0 for cuda)")
          ->check(CLI::IsMember({"0", "1", "2", "3", "4"}))
          ->type_name("N"));
  std::vector<const CLI::Option*> of_checkpoints, of_safetensors;
  of_safetensors.push_back(
      verb->add_option("--shard-size", args->shard_bytes,
                       "safetensors: the most that one file holds, such as 5GB (10^9 bytes each)")
          ->transform(CLI::AsSizeValue(true))
          ->type_name("SIZE"));
  of_checkpoints.push_back(
      verb->add_option("--config", args->config,
                       "gguf, safetensors: the config.json of an ONNX graph, or its folder "
                       "(default: what lockstep.json keeps)")
          ->type_name("PATH"));
  verb->add_flag("--force", args->force, "Replace an earlier export");
  verb->add_flag("--no-verify", args->unverified, "Neither audit nor run what was written");
  AddLongest(*verb, args->longest);
  verb->add_option("--threads", args->threads, "Threads (0: all cores)")
      ->check(WholeNumber(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  verb->add_flag("--json", args->json, "What was written and the verdict as JSON");
  verb->footer(
      "The folder appears complete or not at all. Before it does, its weights, constants and\n"
      "configuration are audited, and where ONNX Runtime is installed its logits are compared "
      "with\n"
      "the checkpoint's (lockstep verify); lockstep.json in the folder keeps the answer, the spec\n"
      "and notes. docs/export.md says what is written.\n"
      "Exit codes: 0 written, and the same model; 1 written, but it differs; 2 wrong usage; 3 a "
      "file\n"
      "cannot be used or written.\n\n"
      "Example: lockstep export smollm2-135m smollm2-genai --to genai");
  of_gguf.push_back(verb->add_flag("--strict", args->strict,
                                   "gguf: refuse a type that is not what was asked for"));
  // Options that not every target has, and the targets that have them.
  struct Restricted {
    std::vector<const CLI::Option*> options;
    std::vector<std::string_view> targets;
  };
  const std::vector<Restricted> restricted = {{of_graphs, {"genai"}},
                                              {of_checkpoints, {"gguf", "safetensors"}},
                                              {of_gguf, {"gguf"}},
                                              {of_safetensors, {"safetensors"}}};
  verb->callback([args, verb, restricted, &action] {
    const bool precision_given = verb->count("--precision") > 0;
    action = [args, precision_given, restricted] {
      if (const Status known = CheckTarget(args->to); !known)
        return Report(known.error(), args->json);
      for (const auto& [options, targets] : restricted) {
        if (std::ranges::count(targets, args->to) > 0) continue;
        for (const CLI::Option* option : options)
          if (option->count() > 0)
            return Report(
                Error{ErrorCode::kUsage,
                      fmt::format("{} is for --to {}: leave it out with --to {}",
                                  option->get_name(), fmt::join(targets, " and "), args->to)},
                args->json);
      }
      const bool graph = !IsCheckpointTarget(args->to);
      if (graph) return RunExport(*args);
      return RunCheckpointExport({.model = args->model,
                                  .out = args->out,
                                  .to = args->to,
                                  .precision = precision_given ? args->options.precision : "keep",
                                  .config = args->config,
                                  .threads = args->threads,
                                  .shard_bytes = std::max<uint64_t>(1, args->shard_bytes),
                                  .strict = args->strict,
                                  .force = args->force,
                                  .unverified = args->unverified,
                                  .json = args->json});
    };
  });
}

}  // namespace lockstep

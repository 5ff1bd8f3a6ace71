#include "cli/export_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "audit/onnx_checkpoint.h"
#include "cli/onnx_input.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/timed_progress.h"
#include "export/gguf/export_gguf.h"
#include "export/gguf/types.h"
#include "export/output_folder.h"
#include "export/safetensors/export_safetensors.h"
#include "model/model.h"
#include "subjects/open_subject.h"

namespace lockstep {
namespace {

struct Target {
  std::string_view name, description;
  Result<CheckpointExportReport> (*write)(const Model& model, const std::filesystem::path& out,
                                          const CheckpointExportOptions& options);
};
constexpr Target kTargets[] = {
    {"gguf", "a file for llama.cpp (docs/export_gguf.md)", &ExportGguf},
    {"safetensors", "a Hugging Face folder (docs/export_gguf.md)", &ExportSafetensors},
};

const Target* FindTarget(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTargets), std::end(kTargets),
                                [&](const Target& target) { return target.name == name; });
  return it == std::end(kTargets) ? nullptr : it;
}

Result<OnnxInput> Open(const CheckpointExportArgs& args) {
  if (!HoldsOnnx(args.model)) {
    if (!args.config.empty())
      return UsageError("--config is for ONNX graphs, and there is none at {}", args.model);
    LS_TRY(Model model, LoadModel(std::filesystem::path(args.model)));
    return OnnxInput{.model = std::move(model)};
  }
  LS_TRY(OnnxInput input, OpenOnnxInput(args.model, args.config));
  if (!args.unverified) LS_RETURN_IF_ERROR(CheckSameFunction(input.model, *input.onnx));
  return input;
}

Result<CheckpointExportReport> Work(const CheckpointExportArgs& args) {
  LS_TRY(const OnnxInput input, Open(args));
  const Model& model = input.model;
  if (!args.json && input.onnx == nullptr) PrintNotes(model.notes);
  CatchInterrupts();
  TimedProgress progress;
  CheckpointExportOptions options{.precision = args.precision,
                                  .before = input.before,
                                  .strict = args.strict,
                                  .force = args.force,
                                  .verify = !args.unverified,
                                  .threads = ThreadCount(args.threads),
                                  .shard_bytes = args.shard_bytes};
  options.resume_key =
      ResumeKey(model, {{"lockstep", LOCKSTEP_VERSION},
                        {"target", args.to},
                        {"precision", args.precision},
                        {"before", input.before == nullptr ? "" : std::string(input.before->name)},
                        {"shard_bytes", args.shard_bytes}});
  options.say = [&](const std::string& sentence) {
    if (!args.json) PrintNotes({sentence});
  };
  options.progress = [&](uint64_t done, uint64_t total) {
    return progress.Show("writing weights", static_cast<int64_t>(done),
                         static_cast<int64_t>(total));
  };
  LS_TRY(CheckpointExportReport report, FindTarget(args.to)->write(model, args.out, options));
  // What became of a graph's weights is part of the answer.
  if (input.onnx != nullptr)
    report.notes.insert(report.notes.begin(), model.notes.begin(), model.notes.end());
  return report;
}

std::string Text(const CheckpointExportArgs& args, const CheckpointExportReport& report) {
  std::string out = fmt::format("written: {} ({}, {}, {} tensors, {} bytes)\n", args.out,
                                report.architecture, args.precision, report.tensors, report.bytes);
  for (const std::string& note : report.notes) out += fmt::format("  {}\n", note);
  if (!report.substitutions.empty()) {
    out += fmt::format("  {} tensors have another type than was asked for:\n",
                       report.substitutions.size());
    for (const std::string& line : report.substitutions) out += fmt::format("    {}\n", line);
  }
  if (args.unverified) return out + "not read again\n";
  out +=
      fmt::format("read again: the same facts; {} weights equal bit for bit", report.exact_weights);
  if (report.rounded_weights > 0)
    out += fmt::format(", {} rounded (relative error {:.3g})", report.rounded_weights,
                       report.relative_error);
  return out + "\n";
}

}  // namespace

bool IsCheckpointTarget(std::string_view to) { return FindTarget(to) != nullptr; }

std::vector<std::string_view> CheckpointTargetNames() {
  std::vector<std::string_view> names;
  for (const Target& target : kTargets) names.push_back(target.name);
  return names;
}

std::string CheckpointTargetsHelp() {
  std::string out;
  for (const Target& target : kTargets)
    out += fmt::format("\n{}: {}", target.name, target.description);
  return out;
}

std::string CheckpointPrecisionsHelp() {
  std::vector<std::string_view> names;
  for (const GgufPrecision& precision : GgufPrecisions()) names.push_back(precision.name);
  return fmt::format("\nof gguf: {}\nof safetensors: keep, f32, f16, bf16", fmt::join(names, ", "));
}

int RunCheckpointExport(const CheckpointExportArgs& args) {
  const auto report = Work(args);
  if (!report) return Report(report.error(), args.json);
  if (!args.json) {
    Print(Text(args, *report));
    return kExitYes;
  }
  Json json = Json::object();
  json["written"] = args.out;
  json["target"] = args.to;
  json["precision"] = args.precision;
  json["architecture"] = report->architecture;
  json["tensors"] = report->tensors;
  json["bytes"] = report->bytes;
  json["notes"] = report->notes;
  json["substitutions"] = report->substitutions;
  if (!args.unverified)
    json["read_again"] = {{"exact_weights", report->exact_weights},
                          {"rounded_weights", report->rounded_weights},
                          {"relative_error", report->relative_error}};
  PrintJson(json);
  return kExitYes;
}

}  // namespace lockstep

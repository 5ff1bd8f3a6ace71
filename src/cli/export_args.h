// What `lockstep export` and `lockstep quantize` share: the arguments of an export that writes a
// graph, and how it is done.
#pragma once

#include <string>

#include "cli/examine.h"
#include "export/checkpoint_export.h"
#include "export/export.h"

namespace lockstep {

struct ExportArgs {
  std::string model, out, to;
  std::string config;  // of targets that are checkpoints: the configuration of an ONNX graph
  ExportOptions options;
  int64_t threads = 0, longest = kLongestProbe;
  std::string method, calibration;  // a name of CodeMethods(); a file of text
  bool force = false, unverified = false, json = false;
  uint64_t shard_bytes = CheckpointExportOptions{}.shard_bytes;
  bool strict = false;  // of the targets that are checkpoints again
  // Not owned. The model, where it is loaded already; bits by matrix.
  const Model* loaded = nullptr;
  const CodePlan* plan = nullptr;
};

// Refuses what contradicts itself, before anything is read.
Status CheckExport(const ExportArgs& args);
// Prints what was written and what the proof gave; an ExitCode.
int RunExport(const ExportArgs& args);
// "\nrtn: ...", "\nmse: ..."
std::string MethodsHelp();

// A text that was named by an option: not empty, UTF-8.
Result<std::string> ReadGivenText(const std::string& file);

}  // namespace lockstep

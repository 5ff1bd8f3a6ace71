// lockstep export --to gguf and --to safetensors: a model as a checkpoint of another kind. What was
// written is read again and compared with the model, fact by fact and weight by weight.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "export/checkpoint_export.h"

namespace lockstep {

struct CheckpointExportArgs {
  std::string model, out, to, precision;
  std::string config;  // of an ONNX graph that comes without
  int64_t threads = 0;
  uint64_t shard_bytes = CheckpointExportOptions{}.shard_bytes;
  bool strict = false, force = false, unverified = false, json = false;
};

bool IsCheckpointTarget(std::string_view to);
std::vector<std::string_view> CheckpointTargetNames();
std::string CheckpointTargetsHelp();     // "\nname: what it is" of each
std::string CheckpointPrecisionsHelp();  // "\nof gguf: keep, f32, ..."

int RunCheckpointExport(const CheckpointExportArgs& args);  // an ExitCode

}  // namespace lockstep

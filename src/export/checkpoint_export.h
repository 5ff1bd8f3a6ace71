// What the targets of `lockstep export` that are checkpoints again (gguf, safetensors) take and
// give.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "formats/tensor_stream.h"

namespace lockstep {

struct CheckpointExportOptions {
  std::string precision = "keep";
  // Of a model in fp32: the type that its checkpoint had, which "keep" takes where it holds every
  // matrix. Null: as it is.
  const TensorType* before = nullptr;
  bool strict = false;  // a substituted type or a rounded weight is an error
  bool force = false;   // replaces what is there
  bool verify = true;   // reads the result again and compares facts and weights
  int threads = 1;
  // safetensors: a file is no larger, but for one tensor. transformers' default for max_shard_size
  // was 5 GB; 1 GB is 10^9 bytes there.
  uint64_t shard_bytes = 5'000'000'000;
  std::string resume_key;                                     // OutputFolder::Options
  std::function<void(const std::string& sentence)> say = {};  // what is no part of the report
  WriteProgress progress = {};
};

struct CheckpointExportReport {
  uint64_t bytes = 0;
  std::string architecture;  // as the target calls it
  size_t tensors = 0;
  std::vector<std::string> substitutions;  // tensors that did not get the type asked for
  std::vector<std::string> notes;
  // Of the weights that were read again (verify): those equal bit for bit, and the root of the mean
  // square of the others' error relative to that of their values.
  int64_t exact_weights = 0, rounded_weights = 0;
  double relative_error = 0;
};

}  // namespace lockstep

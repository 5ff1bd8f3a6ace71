// Checkpoint: the bytes of a model before anyone knows what model it is: key-values and a directory
// of tensors that lie in mapped files. Made by OpenCheckpoint (a Hugging Face folder or a GGUF
// file); read by arch/ (key-values) and model/ (tensors).
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "formats/gguf_metadata.h"
#include "formats/tensor_info.h"

namespace lockstep {

struct Checkpoint {
  enum class Kind { kHuggingFace, kGguf };
  Kind kind = Kind::kHuggingFace;
  std::filesystem::path path;       // as given: the folder, or the .gguf file
  Json config;                      // config.json; null for GGUF
  Json generation_config;           // generation_config.json; null when there is none
  GgufMetadata gguf;                // empty for Hugging Face folders
  std::vector<TensorInfo> tensors;  // sorted by name
  std::vector<std::shared_ptr<const MappedFile>> files;  // keep the tensors' bytes alive

  const TensorInfo* Find(std::string_view name) const;  // nullptr when absent
};

// A folder with config.json and safetensors (single or sharded), or a .gguf file (split files
// "-00001-of-0000N.gguf" are joined). Checks everything that can be checked without touching the
// weights' bytes.
Result<Checkpoint> OpenCheckpoint(const std::filesystem::path& path);

}  // namespace lockstep

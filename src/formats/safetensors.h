// Safetensors: a JSON directory in front of raw little-endian tensors (docs/formats/safetensors.md
// draws its bytes). Read by hf_folder and trace; written by trace and export.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/tensor_info.h"
#include "formats/tensor_stream.h"

namespace lockstep {

struct SafetensorsFile {
  std::vector<TensorInfo> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const MappedFile> file;  // keeps the tensors' bytes alive; null after Parse

  const TensorInfo* Find(std::string_view name) const;  // nullptr when absent
};

// Refuses whatever the format's own implementation refuses (a header above 100 MB, unknown or
// missing fields, tensors that overlap or leave holes, bytes after the last one), names given twice
// and ranks above 8. Reads the header only.
Result<SafetensorsFile> OpenSafetensors(const std::filesystem::path& path);

// The same from memory: the tensors are views of `bytes`. `place` opens every message.
Result<SafetensorsFile> ParseSafetensors(std::span<const std::byte> bytes, std::string_view place);

struct TensorToWrite {
  std::string_view name;
  const TensorType* type = nullptr;  // a plain one
  std::span<const int64_t> shape;
  std::span<const std::byte> bytes;  // as many as shape and type ask for
};

// Replaces `path` atomically. The same tensors give the same bytes in whatever order they come:
// wide types first, then by name, as the format's own implementation orders them, so that every
// tensor is aligned to its elements. Fails when names repeat or are not UTF-8, or when sizes
// disagree.
Status WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata = {});

// The same file from tensors that are too large to hold, row by row (tensor_stream.h).
Status StreamSafetensors(const std::filesystem::path& path, std::span<const StreamedTensor> tensors,
                         const FillRows& fill, const WriteProgress& progress = {},
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep

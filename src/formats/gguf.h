// GGUF: llama.cpp's single-file checkpoint: key-values, a directory of tensors, aligned data
// (docs/formats/gguf.md draws its bytes). Little-endian versions 2 and 3 are read;
// gguf_write.h writes version 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/gguf_metadata.h"
#include "formats/tensor_info.h"

namespace lockstep {

struct GgufFile {
  uint32_t version = 0;
  uint64_t alignment = 32;
  GgufMetadata metadata;            // views of the bytes
  std::vector<TensorInfo> tensors;  // sorted by name; views of the bytes
};

// Checks every length, count, type, offset and alignment against the bytes that are there; never
// touches the tensors' data. `place` opens every message. The bytes must outlive the result.
Result<GgufFile> ParseGguf(std::span<const std::byte> bytes, std::string_view place);

}  // namespace lockstep

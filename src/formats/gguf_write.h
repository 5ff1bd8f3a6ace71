// Writes a GGUF file (version 3, little-endian): key-values, the directory of tensors, their data,
// aligned (docs/formats/gguf.md draws the bytes). The same arguments give the same bytes.
#pragma once

#include <filesystem>
#include <span>

#include "base/error.h"
#include "formats/gguf_values.h"
#include "formats/tensor_stream.h"

namespace lockstep {

// Replaces `path` when the last byte is on the disk, never before. Fails when a name is given
// twice, is longer than llama.cpp takes (63 bytes) or a type has no number in GGUF.
Status WriteGguf(const std::filesystem::path& path, const GgufValues& values,
                 std::span<const StreamedTensor> tensors, const FillRows& fill,
                 const WriteProgress& progress = {});

}  // namespace lockstep

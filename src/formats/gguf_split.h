// Split GGUF: one checkpoint in several files "x-00001-of-00003.gguf", as llama-gguf-split writes
// them. The first holds the key-values; each holds a part of the tensors.
#pragma once

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/checkpoint.h"

namespace lockstep {

// `first` is any file of the split, or the only file; already known to open like a GGUF.
Result<Checkpoint> OpenGguf(const std::filesystem::path& path,
                            std::shared_ptr<const MappedFile> file);

}  // namespace lockstep

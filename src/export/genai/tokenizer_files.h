// The text side of an exported folder: the checkpoint's tokenizer files and chat template, in the
// form that onnxruntime-genai 0.18 loads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/checkpoint.h"

namespace lockstep::genai {

// Copies them into `folder`; what is missing or was changed goes into `notes`.
Status WriteTokenizerFiles(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                           std::vector<std::string>& notes);

}  // namespace lockstep::genai

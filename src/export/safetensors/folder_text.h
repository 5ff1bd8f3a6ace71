// The text side of a Hugging Face folder: generation_config.json, tokenizer.json,
// tokenizer_config.json and the chat template; copied from a folder, made from a GGUF's keys.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/model.h"

namespace lockstep {

// What cannot be written goes into `notes`.
Status WriteFolderText(const Model& model, const std::filesystem::path& folder,
                       std::vector<std::string>& notes);

}  // namespace lockstep

// A Hugging Face folder: config.json, perhaps generation_config.json, and weights in one
// safetensors file or in shards that model.safetensors.index.json lists.
#pragma once

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "formats/checkpoint.h"

namespace lockstep {

// `weights` names the safetensors file to read; without it the folder decides, as transformers
// does: model.safetensors, else the index's shards, else the only *.safetensors there is.
Result<Checkpoint> OpenHfFolder(const std::filesystem::path& folder,
                                const std::optional<std::filesystem::path>& weights = {});

}  // namespace lockstep

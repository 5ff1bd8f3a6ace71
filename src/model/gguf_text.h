// The text side of a GGUF file: its tokenizer.* keys as a TextModel. Part of LoadTextModel.
#pragma once

#include "base/error.h"
#include "formats/checkpoint.h"
#include "model/text_model.h"

namespace lockstep {

Result<TextModel> LoadGgufTextModel(const Checkpoint& checkpoint);

}  // namespace lockstep

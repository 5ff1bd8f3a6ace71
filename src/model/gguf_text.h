// The text side of a GGUF file: its tokenizer.* keys as a TextModel. Part of LoadTextModel.
#pragma once

#include "base/error.h"
#include "formats/checkpoint.h"
#include "model/text_model.h"
#include "tokenizer/gguf_vocabulary.h"

namespace lockstep {

Result<TextModel> LoadGgufTextModel(const Checkpoint& checkpoint);

// The tokenizer.ggml.* keys as data; its texts lie in the checkpoint. Without tokens: an empty one.
Result<GgufVocabulary> ReadGgufVocabulary(const Checkpoint& checkpoint);

}  // namespace lockstep

// The text side of a model as tokenizer.* keys of GGUF: tokens, types, scores, merges, the name of
// the pre-tokenizer, special ids, the chat template. What was written is read back and must encode
// a set of probe texts as the model's own tokenizer does; otherwise the export fails.
#pragma once

#include <string>
#include <vector>

#include "formats/gguf_values.h"
#include "model/model.h"

namespace lockstep {

// Adds to `values`, which already holds what the spec says (the ids of bos, eos, pad). A model
// without a tokenizer gets `tokenizer.ggml.model = "none"` and a note.
Status AddTokenizerKeys(const Model& model, GgufValues& values, std::vector<std::string>& notes);

}  // namespace lockstep

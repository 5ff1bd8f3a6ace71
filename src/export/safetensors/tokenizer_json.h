// A GGUF's tokenizer as tokenizer.json, in the words of Hugging Face `tokenizers`.
#pragma once

#include <string>

#include "base/error.h"
#include "tokenizer/gguf_vocabulary.h"

namespace lockstep {

// Byte-level BPE with the regular expressions that `pre` names, or, for SentencePiece vocabularies,
// BPE whose merges follow from the scores. `place` opens messages.
Result<std::string> TokenizerJsonOf(const GgufVocabulary& vocabulary, std::string_view place);

}  // namespace lockstep

// The vocabulary inside a GGUF file as a tokenizer.json, for programs that read nothing else: the
// same steps as gguf_tokenizer.h, in Hugging Face's words. Merges of a vocabulary that has only
// scores (model "llama") are made as transformers makes them: every way to cut a token in two, the
// best scores first.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/gguf_vocabulary.h"

namespace lockstep {

// The same vocabulary gives the same text. Fails where LoadGgufTokenizer does.
Result<std::string> GgufTokenizerJson(const GgufVocabulary& vocabulary, std::string_view place);

}  // namespace lockstep

// Reads tokenizer.json, the file of Hugging Face `tokenizers`, into a Tokenizer.
#pragma once

#include <string_view>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

// `place` opens every error: "tokenizer.json".
Result<Tokenizer> LoadTokenizerJson(std::string_view bytes, std::string_view place);

}  // namespace lockstep

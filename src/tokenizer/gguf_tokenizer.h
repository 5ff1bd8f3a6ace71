// Makes a Tokenizer of the vocabulary inside a GGUF file: byte-level BPE (model "gpt2", with the
// regular expressions that `tokenizer.ggml.pre` names) or SentencePiece-style BPE by scores (model
// "llama").
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

Result<Tokenizer> LoadGgufTokenizer(const GgufVocabulary& vocabulary, std::string_view place);

// What one value of `tokenizer.ggml.pre` stands for.
struct GgufPreTokenizer {
  std::string_view name;
  std::span<const std::string_view> patterns;  // each isolates its matches, one after the other
  bool nfc = false;                            // the model's own tokenizer normalises first
  bool ignore_merges = false;                  // a word that is a token is taken whole
  bool add_bos = false;                        // when the file does not say
};
std::span<const GgufPreTokenizer> GgufPreTokenizers();  // sorted by name

}  // namespace lockstep

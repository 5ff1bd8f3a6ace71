// WordPiece and WordLevel: the models of BERT-like tokenizer files. A word is cut greedily into the
// longest pieces of the vocabulary, or looked up whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/model_token.h"
#include "tokenizer/vocabulary.h"

namespace lockstep {

class WordPiece {
 public:
  struct Options {
    std::string unk_token = "[UNK]";
    std::string continuing_subword_prefix = "##";
    uint64_t max_input_chars_per_word = 100;
  };
  WordPiece(Vocabulary vocabulary, Options options);
  const Vocabulary& vocabulary() const { return vocabulary_; }
  Status Tokenize(std::string_view word, std::vector<ModelToken>& out) const;

 private:
  Vocabulary vocabulary_;
  Options options_;
  std::vector<uint32_t>
      lengths_;  // of the tokens, each once, longest first: no other length can match
};

class WordLevel {
 public:
  WordLevel(Vocabulary vocabulary, std::string unk_token)
      : vocabulary_(std::move(vocabulary)), unk_token_(std::move(unk_token)) {}
  const Vocabulary& vocabulary() const { return vocabulary_; }
  Status Tokenize(std::string_view word, std::vector<ModelToken>& out) const;

 private:
  Vocabulary vocabulary_;
  std::string unk_token_;
};

}  // namespace lockstep

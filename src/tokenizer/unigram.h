// Unigram: the segmentation of a word with the highest sum of scores (SentencePiece's unigram
// model, as `tokenizers` computes it: Viterbi over bytes, unknown characters at the lowest score -
// 10, fused).
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/model_token.h"
#include "tokenizer/trie.h"
#include "tokenizer/vocabulary.h"

namespace lockstep {

class Unigram {
 public:
  // scores[id] belongs to the token of that id.
  static Result<Unigram> Make(Vocabulary vocabulary, std::vector<double> scores,
                              std::optional<int64_t> unk_id, bool byte_fallback);
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk_id() const { return unk_id_; }
  Status Tokenize(std::string_view word, std::vector<ModelToken>& out) const;

 private:
  Vocabulary vocabulary_;
  std::vector<double> scores_;
  ByteTrie trie_;
  std::optional<int32_t> unk_id_;
  double unk_score_ = 0;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_id_{};
};

}  // namespace lockstep

// TokenModel: one of the ways to turn a word into tokens. (The name Model is taken by
// model/model.h, which includes this header.)
#pragma once

#include <variant>

#include "tokenizer/bpe.h"
#include "tokenizer/spm.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace lockstep {

using TokenModel = std::variant<Bpe, WordPiece, WordLevel, Unigram, Spm>;

inline const Vocabulary& VocabularyOf(const TokenModel& model) {
  return std::visit([](const auto& m) -> const Vocabulary& { return m.vocabulary(); }, model);
}

}  // namespace lockstep

// Spm: SentencePiece-style BPE by scores, the rule of GGUF's tokenizer model "llama": the adjacent
// pair whose joined text is the token with the highest score merges first (leftmost on ties); what
// is left without a token becomes byte tokens. GGUF has no merge list for it, only scores.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/model_token.h"
#include "tokenizer/vocabulary.h"

namespace lockstep {

class Spm {
 public:
  // scores[id] belongs to the token of that id. unk_id: -1 for none.
  static Spm Make(Vocabulary vocabulary, std::vector<float> scores, int32_t unk_id);
  const Vocabulary& vocabulary() const { return vocabulary_; }
  Status Tokenize(std::string_view word, std::vector<ModelToken>& out) const;

 private:
  Vocabulary vocabulary_;
  std::vector<float> scores_;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> fallback_id_{};
  size_t longest_ = 0;  // bytes of the longest token: no join beyond it can be one
};

}  // namespace lockstep

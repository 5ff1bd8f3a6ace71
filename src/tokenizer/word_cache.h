// WordCache: the tokens of words seen before in the same text. It lives for one call of Encode, so
// tokenizers share nothing between threads. One slot for each hash: a newer word takes the place.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/model_token.h"
#include "tokenizer/vocabulary.h"

namespace lockstep {

class WordCache {
 public:
  explicit WordCache(size_t num_words) {
    size_t slots = 1;
    while (slots < num_words && slots < 65536) slots *= 2;
    slots_.resize(slots);
  }

  // The tokens of a word, valid until the next call. The word's bytes must outlive the cache.
  template <typename Model>
  Result<std::span<const ModelToken>> Tokenize(const Model& model, std::string_view word) {
    if (word.size() > kLongest) {  // rare, and would fill the pool
      long_word_.clear();
      LS_RETURN_IF_ERROR(model.Tokenize(word, long_word_));
      return std::span<const ModelToken>(long_word_);
    }
    Slot& slot = slots_[HashBytes(word) & (slots_.size() - 1)];
    if (slot.word != word) {
      const size_t first = pool_.size();
      LS_RETURN_IF_ERROR(model.Tokenize(word, pool_));
      slot = {word, static_cast<uint32_t>(first), static_cast<uint32_t>(pool_.size() - first)};
    }
    return std::span<const ModelToken>(pool_).subspan(slot.first, slot.count);
  }

 private:
  static constexpr size_t kLongest = 64;
  struct Slot {
    std::string_view word;          // empty: free, and right for the empty word
    uint32_t first = 0, count = 0;  // in pool_
  };
  std::vector<Slot> slots_;
  std::vector<ModelToken> pool_;
  std::vector<ModelToken> long_word_;
};

}  // namespace lockstep

// Bpe: byte-pair encoding of one word, as `tokenizers`' BPE model does it (byte-level or on
// characters, with byte fallback, unknown tokens, prefix and suffix). The model step of the encode
// pipeline.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/flat_map.h"
#include "tokenizer/model_token.h"
#include "tokenizer/vocabulary.h"

namespace lockstep {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;  // of every character but the first
  std::string end_of_word_suffix;         // of the last character
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  // Words arrive as raw bytes and the vocabulary is written in the byte alphabet: the result is the
  // same as mapping every word first.
  bool raw_bytes = false;
};

class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string_view, std::string_view>>;  // rank = position

  static Result<Bpe> Make(Vocabulary vocabulary, const Merges& merges, BpeOptions options);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Whether raw_bytes may replace the byte-level mapping in front of this model. Every byte needs a
  // token: one that vanishes shifts the offsets of the rest by the length of its character, not by
  // one.
  static bool CanTakeRawBytes(const Vocabulary& vocabulary, const BpeOptions& options);

  Status Tokenize(std::string_view word, std::vector<ModelToken>& out) const;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };
  struct Symbol {
    int32_t id;
    uint32_t length;  // bytes of the word; 0: merged into the one before
    int32_t previous, next;
  };

  const Merge* FindMerge(int32_t left, int32_t right) const {
    return merges_.Find(uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right));
  }
  Status Start(std::string_view word, std::vector<Symbol>& symbols, bool& has_unknown) const;
  void MergeFew(std::vector<Symbol>& symbols) const;
  void MergeMany(std::vector<Symbol>& symbols) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  FlatMap<Merge> merges_;
  std::array<int32_t, 256> id_of_byte_{};   // raw_bytes: the token of one byte, or -1
  std::array<int32_t, 256> fallback_id_{};  // "<0x41>", or -1
  int32_t unk_id_ = -1;
};

}  // namespace lockstep

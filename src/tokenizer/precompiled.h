// Precompiled: SentencePiece's character map (`precompiled_charsmap`), a double-array trie from
// byte strings to replacements. A normalizer of Unigram tokenizer files. Layout (little-endian):
// u32 size of the trie in bytes; the trie's u32 units; the replacements, each ended by a zero byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/aligned_text.h"

namespace lockstep {

class Precompiled {
 public:
  // From the base64 text in the file.
  static Result<Precompiled> Make(std::string_view base64);

  // False, and nothing happens, when the result would be longer than text.longest().
  bool Apply(AlignedText& text) const;

 private:
  std::optional<std::string_view> Replacement(std::string_view chunk) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace lockstep

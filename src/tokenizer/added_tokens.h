// AddedTokens: the tokens that are cut out of the text before the model sees it ("<|im_end|>", runs
// of newlines). Steps 1 and 3 of the encode pipeline: those with normalized = false in the raw
// text, the others in the normalised pieces; leftmost first, then longest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/pieces.h"
#include "tokenizer/trie.h"

namespace lockstep {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only with non-word characters, or the ends, on both sides
  bool lstrip = false;       // swallows the whitespace before it
  bool rstrip = false;       // swallows the whitespace after it
  bool normalized = true;    // looked for in the normalised text; its content is normalised too
  bool special = false;      // dropped by skip_special_tokens
  // What it decodes to, set by AddedTokens: the content, or its normal form if `normalized`.
  // `tokenizers` looks for that text among the special tokens, so a changed one is not dropped.
  std::string decoded;
};

struct TextRange {
  size_t begin, end;  // bytes
};

// Where a text comes from users, whose special tokens are only text.
struct UntrustedText {
  std::span<const TextRange> ranges;  // ascending, disjoint
  std::span<const int32_t>
      also_control_tokens;  // added tokens that count as special there, ascending:
                            // those that the chat template writes ("<tool_call>")
};

class AddedTokens {
 public:
  // Tokens with the same id replace each other, the last one stays.
  static Result<AddedTokens> Make(std::vector<AddedToken> tokens,
                                  const std::vector<Normalizer>& normalizers);

  const std::vector<AddedToken>& tokens() const { return tokens_; }  // ascending by id
  const AddedToken* FindId(int64_t id) const;
  const AddedToken* FindContent(std::string_view content) const;

  // Cuts every piece that is not a token yet. parse_special = false: special tokens stay plain
  // text.
  void SplitRaw(Pieces& pieces, bool parse_special, const UntrustedText& untrusted) const {
    Split(raw_, pieces, parse_special, untrusted);
  }
  void SplitNormalized(Pieces& pieces, bool parse_special) const {
    Split(normalized_, pieces, parse_special, {});
  }

 private:
  void Split(const ByteTrie& trie, Pieces& pieces, bool parse_special,
             const UntrustedText& untrusted) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int64_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  ByteTrie raw_, normalized_;  // values: index into tokens_
};

}  // namespace lockstep

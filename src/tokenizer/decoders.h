// The decoders of tokenizer.json: from token texts back to text. Every decoder is a stage that
// takes tokens piece by piece and passes on what can no longer change, so the same chain decodes a
// whole list and a stream, and a stream never emits broken UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/regex.h"

namespace lockstep {

struct ByteLevelDecoder {};
struct ByteFallbackDecoder {};
struct FuseDecoder {};
struct ReplaceDecoder {
  Regex pattern;
  std::string content;
};
struct StripDecoder {
  std::string content;  // one character
  uint64_t start = 0, stop = 0;
};
struct MetaspaceDecoder {
  std::string replacement;
  bool drop_first = true;  // the first token's marks vanish (every prepend scheme but "never")
};
struct WordPieceDecoder {
  std::string prefix;
  bool cleanup = true;
};
struct BpeDecoder {
  std::string suffix;
};
struct CtcDecoder {
  std::string pad_token, word_delimiter_token;
  bool cleanup = true;
};
struct JoinWithSpaces {};  // what `tokenizers` does without a decoder

using TokenDecoder =
    std::variant<ByteLevelDecoder, ByteFallbackDecoder, FuseDecoder, ReplaceDecoder, StripDecoder,
                 MetaspaceDecoder, WordPieceDecoder, BpeDecoder, CtcDecoder, JoinWithSpaces>;

// A running chain. It refers to the decoders, which must outlive it.
class DecodeChain {
 public:
  explicit DecodeChain(const std::vector<TokenDecoder>& decoders);  // a Sequence is flat here
  DecodeChain(DecodeChain&&) noexcept;
  DecodeChain& operator=(DecodeChain&&) noexcept;
  ~DecodeChain();

  void Push(std::string_view token);
  void Finish();           // no token follows
  std::string TakeText();  // what became final since the last call

  class Stage;  // defined in decoders.cc

 private:
  std::unique_ptr<std::string> text_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace lockstep

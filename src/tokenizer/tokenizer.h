// Tokenizer: text to token ids and back, exactly as Hugging Face `tokenizers` does it for the same
// file. Read from tokenizer.json (tokenizer_json.h), from encoder.json + vocab.bpe (gpt2_files.h)
// or from the vocabulary inside a GGUF file (gguf_tokenizer.h); the rest of the program sees only
// this class. The encode pipeline, each step in its own file: added tokens cut out of the raw text
// -> normalizers -> added tokens of the normalised text -> pre-tokenizers -> model, word by word ->
// post-processors. Immutable once made; const methods may run on several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decoders.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/post_processors.h"
#include "tokenizer/pre_tokenizers.h"

namespace lockstep {

// The default reads text as `tokenizers` does. For text that is not trusted there are two switches:
// parse_special = false is `encode_special_tokens` of `tokenizers` (special tokens are never seen,
// and their characters join the text around them); untrusted is transformers'
// sanitize_control_tokens, for a rendered chat (special tokens inside the users' strings become
// pieces of plain text, those of the template stay).
struct EncodeOptions {
  bool add_special_tokens =
      true;  // the post-processor's ("<bos>"); special tokens in the text stay special
  bool parse_special = true;
  UntrustedText untrusted = {};
};

struct Encoding {
  struct Offsets {
    uint32_t begin, end;  // code points of the text; added special tokens have 0, 0
  };
  std::vector<int32_t> ids;
  std::vector<Offsets> offsets;  // one for each id
};

// What a tokenizer file says; the readers fill it.
struct TokenizerParts {
  std::vector<AddedToken> added_tokens;
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  TokenModel model;
  std::vector<PostProcessor> post_processors;
  std::vector<TokenDecoder> decoders;  // empty: tokens joined with spaces
  std::vector<std::string> notes;
};

class Tokenizer {
 public:
  static Result<Tokenizer> Make(TokenizerParts parts);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Invalid UTF-8 is refused with the byte at which it begins.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;
  Result<Encoding> EncodeWithOffsets(std::string_view text, EncodeOptions options = {}) const;

  // Ids without a token decode to nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  size_t vocab_size() const;  // largest id + 1; ids may have holes
  std::optional<std::string_view> TokenText(int64_t id) const;
  std::optional<int32_t> TokenId(std::string_view text) const;
  bool IsSpecial(int64_t id) const;
  const std::vector<AddedToken>& added_tokens() const;  // ascending by id
  // What the file contradicts without being unusable (an added token whose declared id is not the
  // one that `tokenizers` gives it); one sentence each.
  const std::vector<std::string>& notes() const;

 private:
  friend class StreamDecoder;
  struct Data;
  explicit Tokenizer(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

// Decodes one id at a time. Push and Flush together return exactly Decode of all ids, and each
// return value is valid UTF-8. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  std::string Push(int32_t id);
  std::string Flush();  // what was held back; then it starts anew

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  DecodeChain chain_;
};

// Whether a tokenizer fits an embedding of so many rows.
struct VocabularyFit {
  std::vector<int32_t> ids_without_row;  // the first 16 tokens that the embedding cannot look up
  size_t num_ids_without_row = 0;
  size_t rows_without_token = 0;  // padding, usually harmless
  std::string message;            // a sentence about the difference; empty: they agree
};
VocabularyFit CompareVocabulary(const Tokenizer& tokenizer, size_t embedding_rows);

}  // namespace lockstep

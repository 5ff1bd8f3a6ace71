#include "tokenizer/wordpiece.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

Status AddUnknown(const Vocabulary& vocabulary, std::string_view unk_token, size_t length,
                  std::vector<ModelToken>& out) {
  const int32_t id = vocabulary.Find(unk_token);
  if (id < 0) {
    return InputError(
        "the text has a word without a token and the unk_token \"{}\" is not in the vocabulary",
        unk_token);
  }
  out.push_back({id, 0, static_cast<uint32_t>(length)});
  return {};
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, Options options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  vocabulary_.ForEach([&](std::string_view text, int32_t) {
    lengths_.push_back(static_cast<uint32_t>(text.size()));
  });
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

Status WordPiece::Tokenize(std::string_view word, std::vector<ModelToken>& out) const {
  const auto continues = [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; };
  const auto characters =
      word.size() - static_cast<size_t>(std::count_if(word.begin(), word.end(), continues));
  if (characters > options_.max_input_chars_per_word) {
    return AddUnknown(vocabulary_, options_.unk_token, word.size(), out);
  }
  const size_t first = out.size();
  const std::string& prefix = options_.continuing_subword_prefix;
  std::string piece;
  for (size_t start = 0; start < word.size();) {
    const size_t skip = start > 0 ? prefix.size() : 0;
    int32_t id = -1;
    size_t taken = 0;
    for (const uint32_t length : lengths_) {
      if (length <= skip || length - skip > word.size() - start) continue;
      taken = length - skip;
      if (start + taken < word.size() && continues(word[start + taken])) continue;
      if (start == 0) {
        id = vocabulary_.Find(word.substr(0, taken));
      } else {
        piece.assign(prefix).append(word.substr(start, taken));
        id = vocabulary_.Find(piece);
      }
      if (id >= 0) break;
    }
    if (id < 0) {
      out.resize(first);
      return AddUnknown(vocabulary_, options_.unk_token, word.size(), out);
    }
    out.push_back({id, static_cast<uint32_t>(start), static_cast<uint32_t>(start + taken)});
    start += taken;
  }
  return {};
}

Status WordLevel::Tokenize(std::string_view word, std::vector<ModelToken>& out) const {
  const int32_t id = vocabulary_.Find(word);
  if (id < 0) return AddUnknown(vocabulary_, unk_token_, word.size(), out);
  out.push_back({id, 0, static_cast<uint32_t>(word.size())});
  return {};
}

}  // namespace lockstep

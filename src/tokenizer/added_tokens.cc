#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace lockstep {

Result<AddedTokens> AddedTokens::Make(std::vector<AddedToken> tokens,
                                      const std::vector<Normalizer>& normalizers) {
  AddedTokens added;
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (AddedToken& token : tokens) {
    if (!added.tokens_.empty() && added.tokens_.back().id == token.id) {
      // A text that was special once stays so.
      token.special |=
          added.tokens_.back().special && added.tokens_.back().content == token.content;
      added.tokens_.back() = std::move(token);
    } else {
      added.tokens_.push_back(std::move(token));
    }
  }
  for (size_t k = 0; k < added.tokens_.size(); ++k) {
    AddedToken& token = added.tokens_[k];
    token.decoded = token.content;
    added.by_id_[token.id] = k;
    added.by_content_[token.content] = k;
    if (!token.normalized) {
      added.raw_.Insert(token.content, static_cast<int32_t>(k));
      continue;
    }
    AlignedText content(token.content, token.content, /*tracked=*/false);
    LS_RETURN_IF_ERROR(Normalize(normalizers, content));
    token.decoded = content.text();
    if (!content.text().empty()) added.normalized_.Insert(content.text(), static_cast<int32_t>(k));
  }
  return added;
}

const AddedToken* AddedTokens::FindId(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::FindContent(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::Split(const ByteTrie& trie, Pieces& pieces, bool parse_special,
                        const UntrustedText& untrusted) const {
  if (trie.empty()) return;
  const auto is = [](std::string_view text, size_t at, std::string_view set) {
    return NamedSet(set).Contains(NextCodePoint(text, at));
  };
  // Whether the bytes [begin, end) of an original piece touch an untrusted range.
  const auto is_untrusted = [&](std::string_view text, size_t begin, size_t end) {
    if (untrusted.ranges.empty() || !pieces.IsOriginal(text)) return false;
    const auto start = static_cast<size_t>(text.data() - pieces.original.data());
    const auto after =
        std::partition_point(untrusted.ranges.begin(), untrusted.ranges.end(),
                             [&](const TextRange& range) { return range.end <= start + begin; });
    return after != untrusted.ranges.end() && after->begin < start + end;
  };
  std::vector<Piece> result;
  for (const Piece& piece : pieces.list) {
    if (piece.token >= 0) {
      result.push_back(piece);
      continue;
    }
    const std::string_view text = piece.text;
    size_t done = 0;  // text before it is in `result`
    for (size_t at = 0; at < text.size();) {
      if (!trie.Starts(text[at])) {
        ++at;
        continue;
      }
      size_t length = 0;
      int32_t index = -1;
      trie.ForEachPrefix(text.substr(at), [&](size_t matched, int32_t value) {
        length = matched;
        index = value;
      });
      if (index < 0) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<size_t>(index)];
      size_t begin = at, end = at + length;
      at = end;  // also a match that is not taken is used up
      if (token.special && !parse_special) continue;
      const auto& also = untrusted.also_control_tokens;
      const bool control = token.special || std::binary_search(also.begin(), also.end(), token.id);
      if (control && is_untrusted(text, begin, end)) {
        // A piece of its own without the token's meaning, as transformers' sanitize_control_tokens.
        if (done < begin) result.push_back(pieces.Slice(piece, done, begin));
        result.push_back(pieces.Slice(piece, begin, end));
        done = end;
        continue;
      }
      if (token.single_word) {
        size_t before = begin;
        if (begin > 0) StepBack(text, before);
        if (begin > 0 && is(text, before, "rust_word")) continue;
        if (end < text.size() && is(text, end, "rust_word")) continue;
      }
      if (token.lstrip) {
        begin = std::max(begin, done);
        while (begin > done) {
          size_t previous = begin;
          StepBack(text, previous);
          if (!is(text, previous, "rust_whitespace")) break;
          begin = previous;
        }
      }
      if (token.rstrip) {
        while (end < text.size() && is(text, end, "rust_whitespace")) end += Utf8Length(text[end]);
      }
      // A token that stripped to its right may reach over the next match: that one is still taken,
      // and both count the text between.
      if (done < begin) result.push_back(pieces.Slice(piece, done, begin));
      if (begin < end) {
        result.push_back(pieces.Slice(piece, begin, end));
        result.back().token = token.id;
      }
      done = end;
    }
    if (done < text.size()) result.push_back(pieces.Slice(piece, done, text.size()));
  }
  pieces.list = std::move(result);
}

}  // namespace lockstep

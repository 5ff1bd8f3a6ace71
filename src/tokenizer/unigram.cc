#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "tokenizer/unicode.h"

namespace lockstep {

Result<Unigram> Unigram::Make(Vocabulary vocabulary, std::vector<double> scores,
                              std::optional<int64_t> unk_id, bool byte_fallback) {
  Unigram model;
  if (unk_id && (*unk_id < 0 || static_cast<size_t>(*unk_id) >= vocabulary.size())) {
    return InputError("the Unigram model has unk_id {}, expected an id below its {} tokens",
                      *unk_id, vocabulary.size());
  }
  model.vocabulary_ = std::move(vocabulary);
  model.scores_ = std::move(scores);
  if (unk_id) model.unk_id_ = static_cast<int32_t>(*unk_id);
  model.byte_fallback_ = byte_fallback;
  model.vocabulary_.ForEach([&](std::string_view text, int32_t id) {
    if (!text.empty()) model.trie_.Insert(text, id);
  });
  double lowest = std::numeric_limits<double>::infinity();
  for (const double score : model.scores_) lowest = std::min(lowest, score);
  constexpr double kUnknownPenalty = 10;  // K_UNK_PENALTY
  model.unk_score_ = lowest - kUnknownPenalty;
  for (int b = 0; b < 256; ++b) {
    model.fallback_id_[static_cast<size_t>(b)] =
        model.vocabulary_.Find(fmt::format("<0x{:02X}>", b));
  }
  return model;
}

Status Unigram::Tokenize(std::string_view word, std::vector<ModelToken>& out) const {
  constexpr size_t kUnreached = ~size_t{0};
  struct Node {  // the best path that ends here
    int32_t id = 0;
    double score = 0;
    size_t begin = kUnreached;
  };
  std::vector<Node> best(word.size() + 1);
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    if (best[end].begin == kUnreached || score > best[end].score) best[end] = {id, score, begin};
  };
  for (size_t begin = 0; begin < word.size();) {
    const double here = best[begin].score;
    const size_t length = Utf8Length(word[begin]);
    bool has_single = false;
    trie_.ForEachPrefix(word.substr(begin), [&](size_t matched, int32_t id) {
      offer(begin, begin + matched, scores_[static_cast<size_t>(id)] + here, id);
      has_single |= matched == length;
    });
    if (!has_single) {
      if (!unk_id_)
        return InputError(
            "the text has a character without a token and the Unigram model has no unk_id");
      offer(begin, begin + length, unk_score_ + here, *unk_id_);
    }
    begin += length;
  }

  std::vector<ModelToken> pieces;  // backwards; neighbouring unknowns are one piece
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const Node& node = best[end];
    if (unk_id_ && node.id == *unk_id_ && !pieces.empty() && pieces.back().id == *unk_id_) {
      pieces.back().begin = static_cast<uint32_t>(node.begin);
    } else {
      pieces.push_back({node.id, static_cast<uint32_t>(node.begin), static_cast<uint32_t>(end)});
    }
  }
  std::reverse(pieces.begin(), pieces.end());
  for (const ModelToken& piece : pieces) {
    // `tokenizers` looks the text of the piece up again: a fused unknown may be a token.
    const std::string_view text = word.substr(piece.begin, piece.end - piece.begin);
    if (const int32_t id = vocabulary_.Find(text); id >= 0) {
      out.push_back({id, piece.begin, piece.end});
    } else if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char b) {
                 return fallback_id_[static_cast<uint8_t>(b)] >= 0;
               })) {
      for (const char b : text)
        out.push_back({fallback_id_[static_cast<uint8_t>(b)], piece.begin, piece.end});
    } else {
      out.push_back({*unk_id_, piece.begin, piece.end});
    }
  }
  return {};
}

}  // namespace lockstep

#include "tokenizer/spm.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

struct Symbol {
  uint32_t begin, length;  // length 0: merged into the one before
  int32_t previous, next;
};

struct Candidate {
  float score;
  int32_t position;
  uint32_t length;  // of the joined text: tells stale candidates
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : position > other.position;
  }
};

}  // namespace

Spm Spm::Make(Vocabulary vocabulary, std::vector<float> scores, int32_t unk_id) {
  Spm model;
  model.vocabulary_ = std::move(vocabulary);
  model.scores_ = std::move(scores);
  model.unk_id_ = unk_id;
  model.vocabulary_.ForEach([&](std::string_view text, int32_t) {
    model.longest_ = std::max(model.longest_, text.size());
  });
  for (int b = 0; b < 256; ++b) {
    model.fallback_id_[static_cast<size_t>(b)] =
        model.vocabulary_.Find(fmt::format("<0x{:02X}>", b));
  }
  return model;
}

Status Spm::Tokenize(std::string_view word, std::vector<ModelToken>& out) const {
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size();) {
    const size_t length = Utf8Length(word[i]);
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back(
        {static_cast<uint32_t>(i), static_cast<uint32_t>(length), index - 1, index + 1});
    i += length;
  }
  if (symbols.empty()) return {};
  symbols.back().next = -1;

  std::vector<Candidate> heap;
  const auto consider = [&](int32_t left, int32_t right, bool push) {
    if (left < 0 || right < 0) return;
    const Symbol& a = symbols[static_cast<size_t>(left)];
    const uint32_t length = a.length + symbols[static_cast<size_t>(right)].length;
    if (length > longest_) return;
    const int32_t id = vocabulary_.Find(word.substr(a.begin, length));
    if (id < 0) return;
    heap.push_back({scores_[static_cast<size_t>(id)], left, length});
    if (push) std::push_heap(heap.begin(), heap.end());
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    consider(static_cast<int32_t>(i), static_cast<int32_t>(i + 1), false);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(top.position)];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (left.length + right.length != top.length) continue;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = top.position;
    consider(left.previous, top.position, true);
    consider(top.position, left.next, true);
  }

  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(i)];
    const std::string_view text = word.substr(symbol.begin, symbol.length);
    if (const int32_t id = vocabulary_.Find(text); id >= 0) {
      out.push_back({id, symbol.begin, symbol.begin + symbol.length});
      continue;
    }
    for (size_t b = 0; b < text.size(); ++b) {
      int32_t id = fallback_id_[static_cast<uint8_t>(text[b])];
      if (id < 0) id = unk_id_;
      if (id < 0) {
        return InputError(
            "the text has a character without a token, and the vocabulary has neither the byte "
            "token "
            "<0x{:02X}> nor an unknown token",
            static_cast<uint8_t>(text[b]));
      }
      const auto at = static_cast<uint32_t>(symbol.begin + b);
      out.push_back({id, at, at + 1});
    }
  }
  return {};
}

}  // namespace lockstep

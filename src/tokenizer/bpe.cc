#include "tokenizer/bpe.h"

#include <algorithm>

#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

// Up to this many symbols a scan for the lowest rank beats the heap.
constexpr size_t kFew = 24;

struct Candidate {
  uint32_t rank;
  int32_t position;
  int32_t id;
  // For a heap with the lowest rank on top, leftmost first.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

bool Bpe::CanTakeRawBytes(const Vocabulary& vocabulary, const BpeOptions& options) {
  if (!options.continuing_subword_prefix.empty() || !options.end_of_word_suffix.empty() ||
      options.byte_fallback) {
    return false;
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    std::string mapped;
    AppendByteLevel({&byte, 1}, mapped);
    if (vocabulary.Find(mapped) < 0) return false;
  }
  return true;
}

Result<Bpe> Bpe::Make(Vocabulary vocabulary, const Merges& merges, BpeOptions options) {
  Bpe bpe;
  bpe.vocabulary_ = std::move(vocabulary);
  bpe.options_ = std::move(options);
  const Vocabulary& known = bpe.vocabulary_;
  const size_t prefix = bpe.options_.continuing_subword_prefix.size();
  bpe.merges_.Reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t left_id = known.Find(left), right_id = known.Find(right);
    if (left_id < 0 || right_id < 0) {
      return InputError(
          "merge {} (\"{}\" + \"{}\") uses the token \"{}\", which is not in the vocabulary", rank,
          left.substr(0, 60), right.substr(0, 60), (left_id < 0 ? left : right).substr(0, 60));
    }
    if (right.size() < prefix) {
      return InputError(
          "merge {} (\"{}\" + \"{}\") has a right side shorter than the continuing_subword_prefix "
          "\"{}\"",
          rank, left.substr(0, 60), right.substr(0, 60), bpe.options_.continuing_subword_prefix);
    }
    joined.assign(left).append(right.substr(prefix));
    const int32_t id = known.Find(joined);
    if (id < 0) {
      return InputError("merge {} makes the token \"{}\", which is not in the vocabulary", rank,
                        joined.substr(0, 60));
    }
    // A pair that is listed twice keeps its last rank, as in `tokenizers`.
    bpe.merges_[uint64_t{static_cast<uint32_t>(left_id)} << 32 | static_cast<uint32_t>(right_id)] =
        {static_cast<uint32_t>(rank), id};
  }
  if (bpe.options_.unk_token) bpe.unk_id_ = known.Find(*bpe.options_.unk_token);
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    std::string mapped;
    AppendByteLevel({&byte, 1}, mapped);
    bpe.id_of_byte_[static_cast<size_t>(b)] = known.Find(mapped);
    bpe.fallback_id_[static_cast<size_t>(b)] = known.Find(fmt::format("<0x{:02X}>", b));
  }
  return bpe;
}

Status Bpe::Start(std::string_view word, std::vector<Symbol>& symbols, bool& has_unknown) const {
  uint32_t unknown_length = 0;  // a pending unknown token of so many bytes
  const auto add = [&](int32_t id, uint32_t length) { symbols.push_back({id, length, 0, 0}); };
  const auto flush_unknown = [&] {
    if (unknown_length > 0) add(unk_id_, unknown_length);
    unknown_length = 0;
  };
  std::string decorated;
  for (size_t i = 0; i < word.size();) {
    const size_t length = options_.raw_bytes ? 1 : Utf8Length(word[i]);
    std::string_view text = word.substr(i, length);
    const bool first = i == 0, last = i + length == word.size();
    i += length;
    int32_t id;
    if (options_.raw_bytes) {
      id = id_of_byte_[static_cast<uint8_t>(text[0])];
    } else {
      const bool prefixed = !first && !options_.continuing_subword_prefix.empty();
      const bool suffixed = last && !options_.end_of_word_suffix.empty();
      if (prefixed || suffixed) {
        decorated.assign(prefixed ? options_.continuing_subword_prefix : "").append(text);
        if (suffixed) decorated.append(options_.end_of_word_suffix);
        text = decorated;
      }
      id = vocabulary_.Find(text);
    }
    if (id >= 0) {
      flush_unknown();
      add(id, static_cast<uint32_t>(length));
      continue;
    }
    if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char b) {
          return fallback_id_[static_cast<uint8_t>(b)] >= 0;
        })) {
      // `tokenizers` adds the bytes before an unknown token that is still pending.
      for (const char b : text) add(fallback_id_[static_cast<uint8_t>(b)], 1);
      continue;
    }
    if (!options_.unk_token) continue;  // the character vanishes
    if (unk_id_ < 0) {
      return InputError(
          "the text has a character without a token and the unk_token \"{}\" is not in the "
          "vocabulary",
          *options_.unk_token);
    }
    has_unknown = true;
    if (!options_.fuse_unk) flush_unknown();
    unknown_length += static_cast<uint32_t>(length);
  }
  flush_unknown();
  return {};
}

// Lowest rank first, leftmost on ties, by scanning.
void Bpe::MergeFew(std::vector<Symbol>& symbols) const {
  const Merge* merge[kFew];
  const auto find = [&](size_t i) { return FindMerge(symbols[i].id, symbols[i + 1].id); };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) merge[i] = find(i);
  while (symbols.size() > 1) {
    size_t best = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (merge[i] && (best == symbols.size() || merge[i]->rank < merge[best]->rank)) best = i;
    }
    if (best == symbols.size()) return;
    symbols[best].id = merge[best]->id;
    symbols[best].length += symbols[best + 1].length;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    for (size_t i = best; i + 1 < symbols.size(); ++i) merge[i] = merge[i + 1];
    if (best > 0) merge[best - 1] = find(best - 1);
    if (best + 1 < symbols.size()) merge[best] = find(best);
  }
}

// The same with a heap whose stale entries are recognised when they are taken: n log n, because a
// word may be a whole text (Gemma splits nothing).
void Bpe::MergeMany(std::vector<Symbol>& symbols) const {
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Candidate> heap;
  const auto consider = [&](int32_t left, int32_t right) {
    const auto at = [&](int32_t i) -> const Symbol& { return symbols[static_cast<size_t>(i)]; };
    if (const Merge* merge = FindMerge(at(left).id, at(right).id))
      heap.push_back({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
    if (i + 1 < count) consider(i, i + 1);
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(top.position)];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.length += right.length;
    right.length = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = top.position;
    const auto push = [&](int32_t a, int32_t b) {
      const size_t before = heap.size();
      consider(a, b);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end());
    };
    if (left.previous >= 0) push(left.previous, top.position);
    if (left.next >= 0) push(top.position, left.next);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

Status Bpe::Tokenize(std::string_view word, std::vector<ModelToken>& out) const {
  if (word.empty()) return {};
  if (options_.ignore_merges) {
    std::string mapped;
    if (options_.raw_bytes) AppendByteLevel(word, mapped);
    const int32_t id = vocabulary_.Find(options_.raw_bytes ? std::string_view(mapped) : word);
    if (id >= 0) {
      out.push_back({id, 0, static_cast<uint32_t>(word.size())});
      return {};
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  bool has_unknown = false;
  LS_RETURN_IF_ERROR(Start(word, symbols, has_unknown));
  // Merges that name the unknown token could tell the two ways apart: the heap is what `tokenizers`
  // does.
  if (symbols.size() <= kFew && !has_unknown) {
    MergeFew(symbols);
  } else {
    MergeMany(symbols);
  }
  uint32_t at = 0;
  for (const Symbol& symbol : symbols) {
    out.push_back({symbol.id, at, at + symbol.length});
    at += symbol.length;
  }
  return {};
}

}  // namespace lockstep

// Pieces: a text cut into words on its way to the model, some of them already tokens. Added tokens,
// normalizers and pre-tokenizers each replace the list by a finer one (`tokenizers`'
// PreTokenizedString). Pieces are views into the original text or into `store`, whose elements
// never move.
#pragma once

#include <deque>
#include <string_view>
#include <vector>

#include "tokenizer/aligned_text.h"

namespace lockstep {

struct Piece {
  std::string_view text;
  const Span* spans = nullptr;  // one for each byte; null: original text, or offsets are not wanted
  uint32_t origin = 0;          // where the piece begins in the original text
  int32_t token = -1;           // an added token: `text` is what it covers
};

struct Pieces {
  std::string_view original;
  bool tracked = false;  // whether the places in the original text are kept
  std::vector<Piece> list;
  std::deque<AlignedText> store;

  bool IsOriginal(std::string_view text) const {
    return text.data() >= original.data() &&
           text.data() + text.size() <= original.data() + original.size();
  }
  // A rewritable copy of a piece, and the piece that a rewritten text becomes.
  AlignedText Copy(const Piece& piece) const {
    if (piece.spans == nullptr && IsOriginal(piece.text))
      return AlignedText(original, piece.text, tracked);
    const std::span<const Span> spans = piece.spans != nullptr
                                            ? std::span(piece.spans, piece.text.size())
                                            : std::span<const Span>();
    return AlignedText(original, piece.text, spans, tracked, piece.origin);
  }
  Piece Keep(AlignedText&& text) {
    const AlignedText& kept = store.emplace_back(std::move(text));
    const bool has_spans = tracked && kept.changed();
    return {kept.text(), has_spans ? kept.spans().data() : nullptr, kept.origin(), -1};
  }
  // The part [begin, end) of a piece; not empty.
  Piece Slice(const Piece& piece, size_t begin, size_t end) const {
    Piece part = piece;
    part.text = piece.text.substr(begin, end - begin);
    if (piece.spans != nullptr) {
      part.spans = piece.spans + begin;
      part.origin = part.spans->begin;
    } else {
      part.origin = piece.origin + static_cast<uint32_t>(begin);
    }
    return part;
  }
};

}  // namespace lockstep

// AlignedText: a piece of the text on its way through normalizers and pre-tokenizers, with the
// place in the original text that every byte came from. The counterpart of `tokenizers`'
// NormalizedString; its alignments, odd corners included, decide the offsets that Encode reports.
// Invariant: tracked texts have one span for each byte of text(), unless the text is still
// original.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Span {
  uint32_t begin = 0, end = 0;  // bytes of the original text
};

// One step of a rewrite, in the terms of NormalizedString::transform. change > 0: c is new and
// takes the place of what stands before it; 0: c replaces the next old character; -n: it does, and
// n further old characters are dropped.
struct RewrittenChar {
  char32_t c;
  int32_t change;
};

// What a text may become at most. A file can chain steps that each double a text; the longest
// expansion that makes sense is NFKD of U+FDFA (3 bytes to 33) in the byte alphabet with marks for
// spaces.
inline size_t LongestRewrite(size_t original_bytes) {
  return (size_t{1} << 20) + 256 * original_bytes;
}

class AlignedText {
 public:
  // A slice of the original text, not changed yet.
  AlignedText(std::string_view original, std::string_view slice, bool tracked)
      : original_(original), text_(slice), tracked_(tracked), origin_(OffsetOf(slice)) {}
  // A slice of a changed text. spans: one for each byte, or empty when not tracked.
  AlignedText(std::string_view original, std::string_view slice, std::span<const Span> spans,
              bool tracked, uint32_t origin)
      : original_(original),
        owned_(slice),
        spans_(spans.begin(), spans.end()),
        changed_(true),
        tracked_(tracked),
        origin_(origin) {}

  size_t longest() const { return LongestRewrite(original_.size()); }
  std::string_view text() const { return changed_ ? std::string_view(owned_) : text_; }
  bool changed() const { return changed_; }
  std::span<const Span> spans() const { return spans_; }
  uint32_t origin() const { return origin_; }  // where this piece begins in the original text

  // Replaces the whole text. initial_removed: old characters dropped before the first new one.
  void Transform(std::span<const RewrittenChar> rewritten, size_t initial_removed);
  void Prepend(std::string_view prefix);  // nothing happens to an empty text
  // Puts `content` in the place of every match (objects with begin and end, in bytes, ascending).
  template <typename Matches>
  void Replace(const Matches& matches, std::string_view content);

 private:
  uint32_t OffsetOf(std::string_view slice) const {
    return static_cast<uint32_t>(slice.data() - original_.data());
  }
  std::vector<Span> Spans() const;
  void Become(std::string text, std::vector<Span> spans) {
    owned_ = std::move(text);
    spans_ = std::move(spans);
    changed_ = true;
  }

  std::string_view original_;
  std::string_view text_;  // while not changed
  std::string owned_;
  std::vector<Span> spans_;
  bool changed_ = false;
  bool tracked_ = false;
  uint32_t origin_ = 0;
};

// Every byte as its character of the byte alphabet (tokenizer/byte_level.h).
void MapToByteLevel(AlignedText& text);

template <typename Matches>
void AlignedText::Replace(const Matches& matches, std::string_view content) {
  if (matches.empty()) return;
  const std::string_view old = text();
  const std::vector<Span> old_spans = Spans();
  std::string result;
  std::vector<Span> result_spans;
  size_t last = 0;
  for (const auto& match : matches) {
    result.append(old.substr(last, match.begin - last));
    result.append(content);
    if (tracked_) {
      result_spans.insert(result_spans.end(), old_spans.begin() + static_cast<ptrdiff_t>(last),
                          old_spans.begin() + static_cast<ptrdiff_t>(match.begin));
      // The new text takes the place of the last byte that it replaces.
      const Span place = match.end == 0 ? Span{origin_, origin_} : old_spans[match.end - 1];
      result_spans.insert(result_spans.end(), content.size(), place);
    }
    last = match.end;
  }
  result.append(old.substr(last));
  if (tracked_) {
    result_spans.insert(result_spans.end(), old_spans.begin() + static_cast<ptrdiff_t>(last),
                        old_spans.end());
  }
  Become(std::move(result), std::move(result_spans));
}

}  // namespace lockstep

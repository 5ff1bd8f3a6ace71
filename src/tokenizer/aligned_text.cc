#include "tokenizer/aligned_text.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace lockstep {

std::vector<Span> AlignedText::Spans() const {
  if (!tracked_ || changed_) return spans_;
  // Still original: every byte belongs to its character.
  std::vector<Span> spans;
  spans.reserve(text_.size());
  for (size_t i = 0; i < text_.size();) {
    const size_t length = Utf8Length(text_[i]);
    const uint32_t begin = origin_ + static_cast<uint32_t>(i);
    spans.insert(spans.end(), length, Span{begin, begin + static_cast<uint32_t>(length)});
    i += length;
  }
  return spans;
}

void AlignedText::Transform(std::span<const RewrittenChar> rewritten, size_t initial_removed) {
  const std::string_view old = text();
  const std::vector<Span> old_spans = Spans();
  std::string result;
  result.reserve(old.size());
  std::vector<Span> result_spans;
  size_t at = 0;  // in `old`
  const auto drop = [&](size_t characters) {
    for (; characters > 0 && at < old.size(); --characters) at += Utf8Length(old[at]);
  };
  drop(initial_removed);
  for (const auto& [c, change] : rewritten) {
    const size_t before = result.size();
    AppendUtf8(c, result);
    if (tracked_) {
      Span place{origin_, origin_};
      if (change > 0) {
        if (at > 0) place = old_spans[at - 1];
      } else if (at < old_spans.size()) {
        place = old_spans[at];
      }
      result_spans.insert(result_spans.end(), result.size() - before, place);
    }
    if (change <= 0) drop(1 + static_cast<size_t>(-change));
  }
  Become(std::move(result), std::move(result_spans));
}

void AlignedText::Prepend(std::string_view prefix) {
  const std::string_view old = text();
  if (old.empty() || prefix.empty()) return;
  std::vector<Span> spans = Spans();
  std::string result(prefix);
  result.append(old);
  // The new text takes the place of the first character.
  if (tracked_) spans.insert(spans.begin(), prefix.size(), Span(spans.front()));
  Become(std::move(result), std::move(spans));
}

void MapToByteLevel(AlignedText& text) {
  const std::string_view old = text.text();
  std::vector<RewrittenChar> rewritten;
  rewritten.reserve(old.size());
  for (size_t i = 0; i < old.size();) {
    const size_t end = i + Utf8Length(old[i]);
    for (int32_t change = 0; i < end; change = 1) {
      rewritten.push_back({kByteAlphabet.char_of_byte[static_cast<uint8_t>(old[i++])], change});
    }
  }
  text.Transform(rewritten, 0);
}

}  // namespace lockstep

#include "tokenizer/normalizers.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

Status TooLong(const AlignedText& text) {
  return UnsupportedError("the tokenizer's normalizers would make more than {} bytes of this text",
                          text.longest());
}

constexpr uint32_t kDropped = ~uint32_t{0};

// Maps every code point to one or none (kDropped). Nothing happens when nothing changes.
template <typename Map>
void MapCodePoints(AlignedText& text, Map&& map) {
  const std::string_view old = text.text();
  std::vector<RewrittenChar> rewritten;
  size_t removed_first = 0;
  int32_t removed = 0;
  bool any = false;
  for (size_t i = 0; i < old.size();) {
    const char32_t c = NextCodePoint(old, i);
    const uint32_t mapped = map(c);
    any |= mapped != c;
    if (mapped == kDropped) {
      if (rewritten.empty()) {
        ++removed_first;
      } else {
        ++removed;
        rewritten.back().change = -removed;
      }
      continue;
    }
    rewritten.push_back({static_cast<char32_t>(mapped), 0});
    removed = 0;
  }
  if (any) text.Transform(rewritten, removed_first);
}

Status Apply(const NormalForm& form, AlignedText& text) {
  if (!IsSurelyNormal(text.text(), form)) text.Transform(ToNormalForm(text.text(), form), 0);
  return {};
}

Status Apply(const LowercaseNormalizer&, AlignedText& text) {
  const std::string_view old = text.text();
  std::vector<RewrittenChar> rewritten;
  rewritten.reserve(old.size());
  bool any = false;
  for (size_t i = 0; i < old.size();) {
    const char32_t c = NextCodePoint(old, i);
    if (c < 128) {
      const bool upper = c >= 'A' && c <= 'Z';
      any |= upper;
      rewritten.push_back({upper ? c + 32 : c, 0});
      continue;
    }
    const auto lower = LowercaseOf(c);
    if (lower.empty()) {
      rewritten.push_back({c, 0});
      continue;
    }
    any = true;
    for (size_t k = 0; k < lower.size(); ++k)
      rewritten.push_back({static_cast<char32_t>(lower[k]), k == 0 ? 0 : 1});
  }
  if (any) text.Transform(rewritten, 0);
  return {};
}

Status Apply(const StripNormalizer& strip, AlignedText& text) {
  const CodePointSet& space = NamedSet("rust_whitespace");
  const std::string_view old = text.text();
  size_t begin = 0, end = old.size();
  size_t removed = 0;
  while (strip.left && begin < end) {
    size_t next = begin;
    if (!space.Contains(NextCodePoint(old, next))) break;
    begin = next;
    ++removed;
  }
  while (strip.right && end > begin) {
    size_t previous = end;
    StepBack(old, previous);
    size_t i = previous;
    if (!space.Contains(NextCodePoint(old, i))) break;
    end = previous;
  }
  if (begin == 0 && end == old.size()) return {};
  std::vector<RewrittenChar> rewritten;
  for (size_t i = begin; i < end;) rewritten.push_back({NextCodePoint(old, i), 0});
  text.Transform(rewritten, removed);
  return {};
}

Status Apply(const StripAccentsNormalizer&, AlignedText& text) {
  const CodePointSet& marks = NamedSet("rust_combining_mark");
  MapCodePoints(text, [&](uint32_t c) { return marks.Contains(c) ? kDropped : c; });
  return {};
}

// The clean-up of neural machine translation (SentencePiece's nmt_nfkc): controls vanish,
// separators become spaces.
Status Apply(const NmtNormalizer&, AlignedText& text) {
  MapCodePoints(text, [](uint32_t c) -> uint32_t {
    if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
        c == 0x8F || c == 0x9F) {
      return kDropped;
    }
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    return space ? ' ' : c;
  });
  return {};
}

Status Apply(const ByteLevelNormalizer&, AlignedText& text) {
  MapToByteLevel(text);
  return {};
}

Status Apply(const ReplaceNormalizer& replace, AlignedText& text) {
  std::vector<Regex::Match> matches;
  LS_RETURN_IF_ERROR(replace.pattern.FindAll(text.text(), matches));
  if (text.text().size() + matches.size() * replace.content.size() > text.longest())
    return TooLong(text);
  text.Replace(matches, replace.content);
  return {};
}

Status Apply(const PrependNormalizer& prepend, AlignedText& text) {
  text.Prepend(prepend.prefix);
  return {};
}

Status Apply(const BertNormalizer& bert, AlignedText& text) {
  if (bert.clean_text) {
    const CodePointSet &removed = NamedSet("bert_removed"), &space = NamedSet("bert_space");
    MapCodePoints(text, [&](uint32_t c) -> uint32_t {
      return removed.Contains(c) ? kDropped : space.Contains(c) ? ' ' : c;
    });
  }
  if (bert.handle_chinese_chars) {
    const CodePointSet& chinese = NamedSet("bert_chinese");
    const std::string_view old = text.text();
    std::vector<RewrittenChar> rewritten;
    bool any = false;
    for (size_t i = 0; i < old.size();) {
      const char32_t c = NextCodePoint(old, i);
      if (chinese.Contains(c)) {
        any = true;
        rewritten.insert(rewritten.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
      } else {
        rewritten.push_back({c, 0});
      }
    }
    if (any) text.Transform(rewritten, 0);
  }
  if (bert.strip_accents) {
    LS_RETURN_IF_ERROR(Apply(NormalForm{}, text));  // NFD
    const CodePointSet& accents = NamedSet("bert_accent");
    MapCodePoints(text, [&](uint32_t c) { return accents.Contains(c) ? kDropped : c; });
  }
  if (bert.lowercase) return Apply(LowercaseNormalizer{}, text);
  return {};
}

Status Apply(const Precompiled& precompiled, AlignedText& text) {
  if (!precompiled.Apply(text)) return TooLong(text);
  return {};
}

}  // namespace

Status Normalize(const std::vector<Normalizer>& steps, AlignedText& text) {
  for (const Normalizer& step : steps) {
    LS_RETURN_IF_ERROR(
        std::visit([&](const auto& normalizer) { return Apply(normalizer, text); }, step));
    if (text.text().size() > text.longest()) return TooLong(text);
  }
  return {};
}

}  // namespace lockstep

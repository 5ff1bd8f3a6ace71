#include "tokenizer/normal_forms.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

// Hangul syllables are composed by arithmetic (The Unicode Standard, section 3.12).
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr uint32_t kNumLeads = 19, kNumVowels = 21, kNumTrails = 28;
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

struct Marked {
  RewrittenChar rewritten;
  uint8_t combining_class;
};

void AppendDecomposed(uint32_t c, bool compatibility, std::vector<Marked>& out) {
  const auto put = [&](uint32_t part, bool first) {
    out.push_back({{static_cast<char32_t>(part), first ? 0 : 1}, CombiningClass(part)});
  };
  if (c - kSyllables < kNumSyllables) {
    const uint32_t index = c - kSyllables;
    put(kLeads + index / (kNumVowels * kNumTrails), true);
    put(kVowels + index % (kNumVowels * kNumTrails) / kNumTrails, false);
    if (index % kNumTrails != 0) put(kTrails + index % kNumTrails, false);
    return;
  }
  const auto parts = c < 0xA0        ? std::span<const uint32_t>()
                     : compatibility ? CompatibilityDecomposition(c)
                                     : CanonicalDecomposition(c);
  if (parts.empty()) return put(c, true);
  for (size_t i = 0; i < parts.size(); ++i) put(parts[i], i == 0);
}

uint32_t Compose(uint32_t first, uint32_t second) {
  if (first - kLeads < kNumLeads && second - kVowels < kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + second - kVowels) * kNumTrails;
  }
  const bool open_syllable =
      first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTrails == 0;
  if (open_syllable && second > kTrails && second < kTrails + kNumTrails)
    return first + second - kTrails;
  return ComposePair(first, second);
}

}  // namespace

bool IsSurelyNormal(std::string_view text, NormalForm form) {
  const CodePointSet* inert = nullptr;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      ++i;
      continue;
    }
    if (!form.compose || form.compatibility) return false;
    if (byte < 0xCC) {  // below U+0300 everything is in NFC and composes with nothing before it
      i += 2;
      continue;
    }
    if (inert == nullptr) inert = &NamedSet("nfc_inert");
    if (!inert->Contains(NextCodePoint(text, i))) return false;
  }
  return true;
}

std::vector<RewrittenChar> ToNormalForm(std::string_view text, NormalForm form) {
  std::vector<Marked> chars;
  chars.reserve(text.size());
  for (size_t i = 0; i < text.size();)
    AppendDecomposed(NextCodePoint(text, i), form.compatibility, chars);

  // Canonical order: marks between two starters, by class.
  for (size_t i = 0; i < chars.size();) {
    if (chars[i].combining_class == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < chars.size() && chars[end].combining_class != 0) ++end;
    std::stable_sort(
        chars.begin() + static_cast<ptrdiff_t>(i), chars.begin() + static_cast<ptrdiff_t>(end),
        [](const Marked& a, const Marked& b) { return a.combining_class < b.combining_class; });
    i = end;
  }

  std::vector<RewrittenChar> result;
  result.reserve(chars.size());
  if (!form.compose) {
    for (const Marked& c : chars) result.push_back(c.rewritten);
    return result;
  }
  size_t starter = ~size_t{0};  // in `result`
  uint8_t last_class = 0;       // of what follows the starter; 0: nothing does
  for (const auto& [rewritten, combining_class] : chars) {
    const bool has_starter = starter != ~size_t{0};
    const bool adjacent = has_starter && result.size() == starter + 1;
    if (adjacent || (has_starter && last_class < combining_class && last_class != 0)) {
      if (const uint32_t composed = Compose(result[starter].c, rewritten.c)) {
        result[starter].c = static_cast<char32_t>(composed);
        result[starter].change += rewritten.change - 1;
        continue;
      }
    }
    if (combining_class == 0) starter = result.size();
    last_class = combining_class;
    result.push_back(rewritten);
  }
  return result;
}

}  // namespace lockstep

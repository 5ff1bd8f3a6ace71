#include "jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace lockstep::jinja {
namespace {

// Letters whose upper or title case is more than one letter: Unicode's SpecialCasing.txt, the
// unconditional mappings. Sorted.
struct SpecialCase {
  char32_t code_point;
  const char* upper;
  const char* title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0x00DF, "\x53\x53", "\x53\x73"},
    {0x0149, "\xca\xbc\x4e", "\xca\xbc\x4e"},
    {0x01F0, "\x4a\xcc\x8c", "\x4a\xcc\x8c"},
    {0x0390, "\xce\x99\xcc\x88\xcc\x81", "\xce\x99\xcc\x88\xcc\x81"},
    {0x03B0, "\xce\xa5\xcc\x88\xcc\x81", "\xce\xa5\xcc\x88\xcc\x81"},
    {0x0587, "\xd4\xb5\xd5\x92", "\xd4\xb5\xd6\x82"},
    {0x1E96, "\x48\xcc\xb1", "\x48\xcc\xb1"},
    {0x1E97, "\x54\xcc\x88", "\x54\xcc\x88"},
    {0x1E98, "\x57\xcc\x8a", "\x57\xcc\x8a"},
    {0x1E99, "\x59\xcc\x8a", "\x59\xcc\x8a"},
    {0x1E9A, "\x41\xca\xbe", "\x41\xca\xbe"},
    {0x1F50, "\xce\xa5\xcc\x93", "\xce\xa5\xcc\x93"},
    {0x1F52, "\xce\xa5\xcc\x93\xcc\x80", "\xce\xa5\xcc\x93\xcc\x80"},
    {0x1F54, "\xce\xa5\xcc\x93\xcc\x81", "\xce\xa5\xcc\x93\xcc\x81"},
    {0x1F56, "\xce\xa5\xcc\x93\xcd\x82", "\xce\xa5\xcc\x93\xcd\x82"},
    {0x1F80, "\xe1\xbc\x88\xce\x99", "\xe1\xbe\x88"},
    {0x1F81, "\xe1\xbc\x89\xce\x99", "\xe1\xbe\x89"},
    {0x1F82, "\xe1\xbc\x8a\xce\x99", "\xe1\xbe\x8a"},
    {0x1F83, "\xe1\xbc\x8b\xce\x99", "\xe1\xbe\x8b"},
    {0x1F84, "\xe1\xbc\x8c\xce\x99", "\xe1\xbe\x8c"},
    {0x1F85, "\xe1\xbc\x8d\xce\x99", "\xe1\xbe\x8d"},
    {0x1F86, "\xe1\xbc\x8e\xce\x99", "\xe1\xbe\x8e"},
    {0x1F87, "\xe1\xbc\x8f\xce\x99", "\xe1\xbe\x8f"},
    {0x1F88, "\xe1\xbc\x88\xce\x99", "\xe1\xbe\x88"},
    {0x1F89, "\xe1\xbc\x89\xce\x99", "\xe1\xbe\x89"},
    {0x1F8A, "\xe1\xbc\x8a\xce\x99", "\xe1\xbe\x8a"},
    {0x1F8B, "\xe1\xbc\x8b\xce\x99", "\xe1\xbe\x8b"},
    {0x1F8C, "\xe1\xbc\x8c\xce\x99", "\xe1\xbe\x8c"},
    {0x1F8D, "\xe1\xbc\x8d\xce\x99", "\xe1\xbe\x8d"},
    {0x1F8E, "\xe1\xbc\x8e\xce\x99", "\xe1\xbe\x8e"},
    {0x1F8F, "\xe1\xbc\x8f\xce\x99", "\xe1\xbe\x8f"},
    {0x1F90, "\xe1\xbc\xa8\xce\x99", "\xe1\xbe\x98"},
    {0x1F91, "\xe1\xbc\xa9\xce\x99", "\xe1\xbe\x99"},
    {0x1F92, "\xe1\xbc\xaa\xce\x99", "\xe1\xbe\x9a"},
    {0x1F93, "\xe1\xbc\xab\xce\x99", "\xe1\xbe\x9b"},
    {0x1F94, "\xe1\xbc\xac\xce\x99", "\xe1\xbe\x9c"},
    {0x1F95, "\xe1\xbc\xad\xce\x99", "\xe1\xbe\x9d"},
    {0x1F96, "\xe1\xbc\xae\xce\x99", "\xe1\xbe\x9e"},
    {0x1F97, "\xe1\xbc\xaf\xce\x99", "\xe1\xbe\x9f"},
    {0x1F98, "\xe1\xbc\xa8\xce\x99", "\xe1\xbe\x98"},
    {0x1F99, "\xe1\xbc\xa9\xce\x99", "\xe1\xbe\x99"},
    {0x1F9A, "\xe1\xbc\xaa\xce\x99", "\xe1\xbe\x9a"},
    {0x1F9B, "\xe1\xbc\xab\xce\x99", "\xe1\xbe\x9b"},
    {0x1F9C, "\xe1\xbc\xac\xce\x99", "\xe1\xbe\x9c"},
    {0x1F9D, "\xe1\xbc\xad\xce\x99", "\xe1\xbe\x9d"},
    {0x1F9E, "\xe1\xbc\xae\xce\x99", "\xe1\xbe\x9e"},
    {0x1F9F, "\xe1\xbc\xaf\xce\x99", "\xe1\xbe\x9f"},
    {0x1FA0, "\xe1\xbd\xa8\xce\x99", "\xe1\xbe\xa8"},
    {0x1FA1, "\xe1\xbd\xa9\xce\x99", "\xe1\xbe\xa9"},
    {0x1FA2, "\xe1\xbd\xaa\xce\x99", "\xe1\xbe\xaa"},
    {0x1FA3, "\xe1\xbd\xab\xce\x99", "\xe1\xbe\xab"},
    {0x1FA4, "\xe1\xbd\xac\xce\x99", "\xe1\xbe\xac"},
    {0x1FA5, "\xe1\xbd\xad\xce\x99", "\xe1\xbe\xad"},
    {0x1FA6, "\xe1\xbd\xae\xce\x99", "\xe1\xbe\xae"},
    {0x1FA7, "\xe1\xbd\xaf\xce\x99", "\xe1\xbe\xaf"},
    {0x1FA8, "\xe1\xbd\xa8\xce\x99", "\xe1\xbe\xa8"},
    {0x1FA9, "\xe1\xbd\xa9\xce\x99", "\xe1\xbe\xa9"},
    {0x1FAA, "\xe1\xbd\xaa\xce\x99", "\xe1\xbe\xaa"},
    {0x1FAB, "\xe1\xbd\xab\xce\x99", "\xe1\xbe\xab"},
    {0x1FAC, "\xe1\xbd\xac\xce\x99", "\xe1\xbe\xac"},
    {0x1FAD, "\xe1\xbd\xad\xce\x99", "\xe1\xbe\xad"},
    {0x1FAE, "\xe1\xbd\xae\xce\x99", "\xe1\xbe\xae"},
    {0x1FAF, "\xe1\xbd\xaf\xce\x99", "\xe1\xbe\xaf"},
    {0x1FB2, "\xe1\xbe\xba\xce\x99", "\xe1\xbe\xba\xcd\x85"},
    {0x1FB3, "\xce\x91\xce\x99", "\xe1\xbe\xbc"},
    {0x1FB4, "\xce\x86\xce\x99", "\xce\x86\xcd\x85"},
    {0x1FB6, "\xce\x91\xcd\x82", "\xce\x91\xcd\x82"},
    {0x1FB7, "\xce\x91\xcd\x82\xce\x99", "\xce\x91\xcd\x82\xcd\x85"},
    {0x1FBC, "\xce\x91\xce\x99", "\xe1\xbe\xbc"},
    {0x1FC2, "\xe1\xbf\x8a\xce\x99", "\xe1\xbf\x8a\xcd\x85"},
    {0x1FC3, "\xce\x97\xce\x99", "\xe1\xbf\x8c"},
    {0x1FC4, "\xce\x89\xce\x99", "\xce\x89\xcd\x85"},
    {0x1FC6, "\xce\x97\xcd\x82", "\xce\x97\xcd\x82"},
    {0x1FC7, "\xce\x97\xcd\x82\xce\x99", "\xce\x97\xcd\x82\xcd\x85"},
    {0x1FCC, "\xce\x97\xce\x99", "\xe1\xbf\x8c"},
    {0x1FD2, "\xce\x99\xcc\x88\xcc\x80", "\xce\x99\xcc\x88\xcc\x80"},
    {0x1FD3, "\xce\x99\xcc\x88\xcc\x81", "\xce\x99\xcc\x88\xcc\x81"},
    {0x1FD6, "\xce\x99\xcd\x82", "\xce\x99\xcd\x82"},
    {0x1FD7, "\xce\x99\xcc\x88\xcd\x82", "\xce\x99\xcc\x88\xcd\x82"},
    {0x1FE2, "\xce\xa5\xcc\x88\xcc\x80", "\xce\xa5\xcc\x88\xcc\x80"},
    {0x1FE3, "\xce\xa5\xcc\x88\xcc\x81", "\xce\xa5\xcc\x88\xcc\x81"},
    {0x1FE4, "\xce\xa1\xcc\x93", "\xce\xa1\xcc\x93"},
    {0x1FE6, "\xce\xa5\xcd\x82", "\xce\xa5\xcd\x82"},
    {0x1FE7, "\xce\xa5\xcc\x88\xcd\x82", "\xce\xa5\xcc\x88\xcd\x82"},
    {0x1FF2, "\xe1\xbf\xba\xce\x99", "\xe1\xbf\xba\xcd\x85"},
    {0x1FF3, "\xce\xa9\xce\x99", "\xe1\xbf\xbc"},
    {0x1FF4, "\xce\x8f\xce\x99", "\xce\x8f\xcd\x85"},
    {0x1FF6, "\xce\xa9\xcd\x82", "\xce\xa9\xcd\x82"},
    {0x1FF7, "\xce\xa9\xcd\x82\xce\x99", "\xce\xa9\xcd\x82\xcd\x85"},
    {0x1FFC, "\xce\xa9\xce\x99", "\xe1\xbf\xbc"},
    {0xFB00, "\x46\x46", "\x46\x66"},
    {0xFB01, "\x46\x49", "\x46\x69"},
    {0xFB02, "\x46\x4c", "\x46\x6c"},
    {0xFB03, "\x46\x46\x49", "\x46\x66\x69"},
    {0xFB04, "\x46\x46\x4c", "\x46\x66\x6c"},
    {0xFB05, "\x53\x54", "\x53\x74"},
    {0xFB06, "\x53\x54", "\x53\x74"},
    {0xFB13, "\xd5\x84\xd5\x86", "\xd5\x84\xd5\xb6"},
    {0xFB14, "\xd5\x84\xd4\xb5", "\xd5\x84\xd5\xa5"},
    {0xFB15, "\xd5\x84\xd4\xbb", "\xd5\x84\xd5\xab"},
    {0xFB16, "\xd5\x8e\xd5\x86", "\xd5\x8e\xd5\xb6"},
    {0xFB17, "\xd5\x84\xd4\xbd", "\xd5\x84\xd5\xad"},
};

const SpecialCase* FindSpecialCase(char32_t c) {
  const auto* it =
      std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                       [](const SpecialCase& row, char32_t x) { return row.code_point < x; });
  return it != std::end(kSpecialCases) && it->code_point == c ? it : nullptr;
}

utf8proc_category_t Category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void AppendUpper(char32_t c, std::string& out) {
  if (const SpecialCase* special = c < 0x80 ? nullptr : FindSpecialCase(c)) {
    out += special->upper;
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}
void AppendTitle(char32_t c, std::string& out) {
  if (const SpecialCase* special = c < 0x80 ? nullptr : FindSpecialCase(c)) {
    out += special->title;
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019;
  }
}

void AppendLower(std::u32string_view text, size_t i, std::string& out) {
  const char32_t c = text[i];
  if (c == 0x130) {  // I with a dot: i and a combining dot
    out += "i\xcc\x87";
    return;
  }
  if (c == 0x3A3) {  // sigma has another form at the end of a word
    size_t before = i;
    while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
    size_t after = i + 1;
    while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
    const bool final_sigma =
        before > 0 && IsCased(text[before - 1]) && !(after < text.size() && IsCased(text[after]));
    AppendUtf8(final_sigma ? 0x3C2 : 0x3C3, out);
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

}  // namespace

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::u32string Decode(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) out.push_back(NextCodePoint(text, i));
  return out;
}

std::string Encode(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) AppendUtf8(c, out);
  return out;
}

size_t ByteOffset(std::string_view text, size_t n) {
  size_t i = 0;
  for (; n > 0 && i < text.size(); --n) {
    ++i;
    while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) ++i;
  }
  return i;
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}
bool IsAlpha(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}
bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}
bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }
bool IsLower(char32_t c) {
  // Category Ll, and the two ordinal indicators of Latin-1 (Other_Lowercase).
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}
bool IsTitle(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }
bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}
bool IsIdentifierStart(char32_t c) {
  return c == '_' || IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}
bool IsIdentifierPart(char32_t c) {
  if (IsIdentifierStart(c)) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0xB7;
  }
}
bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) AppendUpper(NextCodePoint(text, i), out);
  return out;
}
std::string ToLower(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  for (size_t i = 0; i < decoded.size(); ++i) AppendLower(decoded, i, out);
  return out;
}
std::string ToTitle(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (in_word) {
      AppendLower(decoded, i, out);
    } else {
      AppendTitle(decoded[i], out);
    }
    in_word = IsCased(decoded[i]);
  }
  return out;
}
std::string Capitalize(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (i == 0) {
      AppendTitle(decoded[i], out);
    } else {
      AppendLower(decoded, i, out);
    }
  }
  return out;
}
std::string SwapCase(std::string_view text) {
  const std::u32string decoded = Decode(text);
  std::string out;
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (IsUpper(decoded[i])) {
      AppendLower(decoded, i, out);
    } else if (IsLower(decoded[i])) {
      AppendUpper(decoded[i], out);
    } else {
      AppendUtf8(decoded[i], out);
    }
  }
  return out;
}
std::string CaseFold(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t folded[8];
    int last_boundclass = 0;
    const char32_t c = NextCodePoint(text, i);
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8,
                                                       UTF8PROC_CASEFOLD, &last_boundclass);
    if (n < 0 || n > 8) {
      AppendUtf8(c, out);
    } else {
      for (utf8proc_ssize_t k = 0; k < n; ++k) AppendUtf8(static_cast<char32_t>(folded[k]), out);
    }
  }
  return out;
}

std::string_view Strip(std::string_view text, Side side, const std::string_view* characters) {
  std::u32string set;
  if (characters) {
    set = Decode(*characters);
    std::sort(set.begin(), set.end());
  }
  const auto strips = [&](char32_t c) {
    return characters ? std::binary_search(set.begin(), set.end(), c) : IsSpace(c);
  };
  size_t begin = 0;
  if (side != Side::kRight) {
    while (begin < text.size()) {
      size_t next = begin;
      if (!strips(NextCodePoint(text, next))) break;
      begin = next;
    }
  }
  size_t end = text.size();
  if (side != Side::kLeft) {
    while (end > begin) {
      size_t start = end - 1;
      while (start > begin && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
      size_t next = start;
      if (!strips(NextCodePoint(text, next))) break;
      end = start;
    }
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = NextCodePoint(text, i);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.push_back(text.substr(start, (keep_ends ? i : at) - start));
    start = i;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace lockstep::jinja

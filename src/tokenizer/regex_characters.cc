#include "tokenizer/regex_characters.h"

#include <algorithm>

#include "base/utf8.h"

namespace lockstep {
namespace {

// Characters that equal a sequence of several when case does not matter (CaseFolding.txt, status
// F).
constexpr CodePointRanges::Range kFoldToSeveral[] = {
    {0xDF, 0xDF},     {0x130, 0x130},   {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},
    {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1E9E, 0x1E9E}, {0x1F50, 0x1F50},
    {0x1F52, 0x1F52}, {0x1F54, 0x1F54}, {0x1F56, 0x1F56}, {0x1F80, 0x1FAF}, {0x1FB2, 0x1FB4},
    {0x1FB6, 0x1FB7}, {0x1FBC, 0x1FBC}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FC7}, {0x1FCC, 0x1FCC},
    {0x1FD2, 0x1FD3}, {0x1FD6, 0x1FD7}, {0x1FE2, 0x1FE4}, {0x1FE6, 0x1FE7}, {0x1FF2, 0x1FF4},
    {0x1FF6, 0x1FF7}, {0x1FFC, 0x1FFC}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}};

CodePointRanges NamedOrWord(std::string_view name, bool in_class) {
  return name == "word" && !in_class ? LoneWordCharacters() : *FindNamedSet(name);
}

}  // namespace

CodePointRanges LoneWordCharacters() {
  CodePointRanges set = *FindNamedSet("word");
  for (const uint32_t c : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) set.Add(c, c);
  return set;
}

Status RegexCharacters::Fold(CodePointRanges& set) const {
  for (const auto& [first, last] : kFoldToSeveral) {
    if (set.Intersected(CodePointRanges::Of(first, last)).empty()) continue;
    return UnsupportedError(
        "the regular expression `{}` matches without regard to case a character (U+{:04X} or near) "
        "that also equals a sequence of several, near byte {}; such foldings are not supported",
        Shortened(), first, at_);
  }
  AddCaseVariants(set);
  return {};
}

Result<std::optional<uint32_t>> RegexCharacters::Escape(CodePointRanges& set, bool in_class) {
  const char c = Peek();
  const auto named = [&](std::string_view name, bool negate) -> std::optional<uint32_t> {
    set = NamedOrWord(name, in_class);
    if (negate) set = set.Negated();
    ++at_;
    return std::nullopt;
  };
  switch (c) {
    case 'd':
      return named("digit", false);
    case 'D':
      return named("digit", true);
    case 'w':
      return named("word", false);
    case 'W':
      return named("word", true);
    case 's':
      return named("space", false);
    case 'S':
      return named("space", true);
    case 'h':
      return named("xdigit", false);
    case 'H':
      return named("xdigit", true);
    case 't':
      ++at_;
      return '\t';
    case 'n':
      ++at_;
      return '\n';
    case 'r':
      ++at_;
      return '\r';
    case 'f':
      ++at_;
      return '\f';
    case 'v':
      ++at_;
      return '\v';
    case 'a':
      ++at_;
      return '\a';
    case 'e':
      ++at_;
      return 0x1B;
    case 'p':
    case 'P':
      return Property(set, in_class);
    case 'x':
      return Hex();
    case 'u': {
      ++at_;
      return HexDigits(4, 4);
    }
    case '0': {
      uint32_t value = 0;
      for (int i = 0; i < 3 && !End() && Peek() >= '0' && Peek() <= '7'; ++i) {
        value = value * 8 + static_cast<uint32_t>(pattern_[at_++] - '0');
      }
      return value;
    }
    case 'c':
    case 'C':
    case 'M':
      return UnsupportedError("the regular expression `{}` uses a control escape \\{}", Shortened(),
                              c);
    default:
      return static_cast<uint32_t>(NextCodePoint(pattern_, at_));
  }
}

Result<std::optional<uint32_t>> RegexCharacters::Hex() {
  ++at_;
  if (Skip("{")) {
    LS_TRY(const auto value, HexDigits(1, 8));
    if (!Skip("}")) return Error("\\x{{ without }}");
    return value;
  }
  LS_TRY(const auto value, HexDigits(1, 2));
  if (*value >= 0x80)
    return UnsupportedError(
        "the regular expression `{}` names the raw byte \\x{:X}; write \\x{{{:X}}} for the "
        "character",
        Shortened(), *value, *value);
  return value;
}

Result<std::optional<uint32_t>> RegexCharacters::HexDigits(int at_least, int at_most) {
  uint64_t value = 0;
  int count = 0;
  for (; count < at_most && !End(); ++count) {
    const char c = Peek();
    const int digit = c >= '0' && c <= '9'                 ? c - '0'
                      : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                           : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<uint64_t>(digit);
    ++at_;
  }
  if (count < at_least) return Error("too few hexadecimal digits");
  if (value > kMaxCodePoint) return Error("the code point U+{:X} above U+10FFFF", value);
  return std::optional(static_cast<uint32_t>(value));
}

Result<std::optional<uint32_t>> RegexCharacters::Property(CodePointRanges& set, bool in_class) {
  bool negate = Peek() == 'P';
  ++at_;
  if (!Skip("{")) return Error("\\p without {{");
  if (Skip("^")) negate = !negate;
  const size_t close = pattern_.find('}', at_);
  if (close == std::string_view::npos) return Error("\\p{{ without }}");
  const std::string_view name = pattern_.substr(at_, close - at_);
  auto found = FindNamedSet(name);
  if (found && (name == "Word" || name == "word")) found = NamedOrWord("word", in_class);
  if (name == "Punct" || name == "punct")
    found = FindNamedSet("P");  // [:punct:] also has the symbols
  if (!found || name.empty() || name.starts_with("rust") || name.starts_with("bert") ||
      name.starts_with("nfc")) {
    return Error(
        "the unknown property \\p{{{}}} (known: general categories such as L, Lu, Nd, the "
        "POSIX names, scripts such as Han, a few properties such as Emoji)",
        name);
  }
  at_ = close + 1;
  set = negate ? found->Negated() : std::move(*found);
  return std::optional<uint32_t>();
}

Result<CodePointRanges> RegexCharacters::Class(int depth, bool ignore_case) {
  if (depth > kMaxRegexDepth) return Error("classes nested deeper than {}", kMaxRegexDepth);
  const size_t begin = at_++;
  const bool negate = Skip("^");
  CodePointRanges whole = CodePointRanges::All(), part;
  bool first = true, intersected = false;
  while (true) {
    if (End()) return Error("a class that opens at byte {} and never closes", begin);
    if (Peek() == ']' && !(first && HasLaterClose())) break;
    first = false;
    if (Skip("&&")) {
      whole = whole.Intersected(part);
      part = {};
      intersected = true;
      continue;
    }
    if (Starts("[:")) {
      LS_TRY(const bool taken, Posix(part));
      if (taken) continue;
    }
    if (Peek() == '[') {
      LS_TRY(const CodePointRanges nested, Class(depth + 1, /*ignore_case=*/false));
      part.Add(nested);
      continue;
    }
    CodePointRanges set;
    LS_TRY(const auto low, ClassAtom(set));
    if (!low) {
      part.Add(set);
      continue;
    }
    uint32_t high = *low;
    if (Starts("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']' && !Starts("-&&")) {
      const size_t dash = at_++;
      if (Peek() == '[') {  // [a-[bc]]: the dash is a literal
        at_ = dash;
      } else {
        CodePointRanges other;
        LS_TRY(const auto bound, ClassAtom(other));
        if (!bound) {  // [a-\d]: the dash is a literal
          part.Add(*low, *low);
          part.Add('-', '-');
          part.Add(other);
          continue;
        }
        if (*bound < *low) return Error("the empty range U+{:04X}-U+{:04X}", *low, *bound);
        high = *bound;
      }
    }
    part.Add(*low, high);
    if (high == *low && Starts("-[")) {
      ++at_;
      part.Add('-', '-');
    }
  }
  ++at_;
  if (intersected) part = whole.Intersected(part);
  // Only the outermost class folds, and before it is negated: so does Oniguruma.
  if (ignore_case && !negate) LS_RETURN_IF_ERROR(Fold(part));
  if (ignore_case && negate) AddCaseVariants(part);
  if (negate) part = part.Negated();
  return part;
}

Result<std::optional<uint32_t>> RegexCharacters::ClassAtom(CodePointRanges& set) {
  if (Peek() != '\\') return std::optional<uint32_t>(NextCodePoint(pattern_, at_));
  ++at_;
  if (End()) return Error("a \\ at its end");
  if (Peek() == 'b') {
    ++at_;
    return std::optional<uint32_t>(0x08);
  }
  return Escape(set, /*in_class=*/true);
}

Result<bool> RegexCharacters::Posix(CodePointRanges& part) {
  const size_t close = pattern_.find(":]", at_ + 2);
  if (close == std::string_view::npos || close - at_ > 20) return false;
  std::string_view name = pattern_.substr(at_ + 2, close - at_ - 2);
  const bool negate = name.starts_with("^");
  if (negate) name.remove_prefix(1);
  constexpr std::string_view kNames[] = {"alnum", "alpha", "ascii", "blank", "cntrl",
                                         "digit", "graph", "lower", "print", "punct",
                                         "space", "upper", "word",  "xdigit"};
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) return false;
  auto set = *FindNamedSet(name);
  part.Add(negate ? set.Negated() : set);
  at_ = close + 2;
  return true;
}

}  // namespace lockstep

// The parser of Oniguruma's syntax (OnigSyntaxOniguruma): pattern text to RegexNode. See its
// doc/RE.
#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/regex_program.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 100;           // of groups and nested classes
constexpr uint32_t kMaxRepeat = 100000;  // Oniguruma's ONIG_MAX_REPEAT_NUM

using Kind = RegexNode::Kind;

// Sequences whose case-insensitive match includes one other character (U+00DF and "ss", U+FB01 and
// "fi").
constexpr std::string_view kFoldingPairs[] = {"ss", "ff", "fi", "fl", "st"};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Result<RegexNode> Run() {
    LS_TRY(RegexNode root, Alternation(0));
    if (at_ < pattern_.size()) return Error("an unmatched )");
    return root;
  }

 private:
  struct Flags {
    bool ignore_case = false, dot_all = false, extended = false;
  };

  template <typename... Args>
  tl::unexpected<lockstep::Error> Error(fmt::format_string<Args...> format, Args&&... args) const {
    return InputError("the regular expression `{}` has {} at byte {}", Shortened(),
                      fmt::format(format, std::forward<Args>(args)...), at_);
  }
  std::string Shortened() const {
    if (pattern_.size() <= 200) return std::string(pattern_);
    size_t cut = 200;
    while ((static_cast<uint8_t>(pattern_[cut]) & 0xC0) == 0x80) --cut;
    return std::string(pattern_.substr(0, cut)) + "...";
  }

  bool End() const { return at_ == pattern_.size(); }
  char Peek() const { return pattern_[at_]; }
  bool Starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool Skip(std::string_view text) {
    if (!Starts(text)) return false;
    at_ += text.size();
    return true;
  }

  static RegexNode SetNode(CodePointRanges set) {
    RegexNode node;
    node.kind = Kind::kSet;
    node.set = std::move(set);
    return node;
  }
  static RegexNode AnchorNode(RegexAnchor anchor) {
    RegexNode node;
    node.kind = Kind::kAnchor;
    node.anchor = anchor;
    return node;
  }
  static RegexNode Wrap(Kind kind, RegexNode child) {
    RegexNode node;
    node.kind = kind;
    node.children.push_back(std::move(child));
    return node;
  }

  CodePointRanges Fold(const CodePointRanges& set) const {
    if (!flags_.ignore_case) return set;
    CodePointRanges folded = set;
    AddCaseVariants(folded);
    return folded;
  }

  Result<RegexNode> Alternation(int depth) {
    if (depth > kMaxDepth) return Error("groups nested deeper than {}", kMaxDepth);
    const Flags outer = flags_;
    RegexNode node;
    node.kind = Kind::kAlternation;
    while (true) {
      LS_TRY(RegexNode branch, Sequence(depth));
      node.children.push_back(std::move(branch));
      if (!Skip("|")) break;
    }
    flags_ = outer;
    if (node.children.size() == 1) return std::move(node.children[0]);
    return node;
  }

  Result<RegexNode> Sequence(int depth) {
    RegexNode node;
    node.kind = Kind::kSequence;
    std::string folding;  // the last two case-insensitive letters
    while (!End() && Peek() != '|' && Peek() != ')') {
      if (flags_.extended) {
        if (Peek() == ' ' || (Peek() >= '\t' && Peek() <= '\r')) {
          ++at_;
          continue;
        }
        if (Peek() == '#') {
          while (!End() && Peek() != '\n') ++at_;
          continue;
        }
      }
      if (Skip("(?#")) {
        while (!End() && Peek() != ')') ++at_;
        if (!Skip(")")) return Error("a comment without )");
        continue;
      }
      // (?i) without a colon: the flags hold up to the end of the group, alternatives included.
      if (Starts("(?") && IsFlagChange()) {
        LS_TRY(const bool isolated, ParseFlags());
        if (isolated) {
          LS_TRY(RegexNode rest, Alternation(depth + 1));
          node.children.push_back(std::move(rest));
          continue;
        }
      }
      const size_t begin = at_;
      LS_TRY(RegexNode atom, Atom(depth));
      if (flags_.ignore_case) {
        const bool letter =
            at_ - begin == 1 && ((pattern_[begin] | 32) >= 'a' && (pattern_[begin] | 32) <= 'z');
        folding = letter ? folding + static_cast<char>(pattern_[begin] | 32) : "";
        if (folding.size() > 2) folding.erase(0, 1);
        for (const std::string_view pair : kFoldingPairs) {
          if (folding == pair) {
            return UnsupportedError(
                "the regular expression `{}` matches \"{}\" without regard to case, which in "
                "Oniguruma "
                "also means one other character; write the letters as classes instead",
                Shortened(), pair);
          }
        }
      }
      LS_RETURN_IF_ERROR(Quantifiers(atom));
      node.children.push_back(std::move(atom));
    }
    if (node.children.empty()) return RegexNode{};
    if (node.children.size() == 1) return std::move(node.children[0]);
    return node;
  }

  bool IsFlagChange() const {
    size_t i = at_ + 2;
    while (i < pattern_.size() &&
           (pattern_[i] == 'i' || pattern_[i] == 'm' || pattern_[i] == 'x' || pattern_[i] == '-'))
      ++i;
    return i > at_ + 2 && i < pattern_.size() && pattern_[i] == ')';
  }

  // At "(?imx-imx)" or "(?imx-imx:"; true: the former.
  Result<bool> ParseFlags() {
    at_ += 2;
    bool value = true;
    while (!End()) {
      const char c = pattern_[at_++];
      if (c == 'i')
        flags_.ignore_case = value;
      else if (c == 'm')
        flags_.dot_all = value;
      else if (c == 'x')
        flags_.extended = value;
      else if (c == '-')
        value = false;
      else if (c == ')')
        return true;
      else if (c == ':')
        return false;
      else
        return Error("the unknown option `{}` after (?", c);
    }
    return Error("an unfinished group");
  }

  Status Quantifiers(RegexNode& atom) {
    int stacked = 0;
    while (!End()) {
      uint32_t min = 0, max = kUnlimited;
      bool interval = false;
      if (Skip("*")) {
      } else if (Skip("+")) {
        min = 1;
      } else if (Skip("?")) {
        max = 1;
      } else if (Peek() == '{') {
        const auto bounds = Interval();
        if (!bounds) return {};  // not an interval: a literal {
        if (bounds->first > kMaxRepeat ||
            (bounds->second != kUnlimited && bounds->second > kMaxRepeat)) {
          return Error("a repetition above {}", kMaxRepeat);
        }
        std::tie(min, max) = *bounds;
        if (min > max)
          return Error("a repetition whose minimum {} is above its maximum {}", min, max);
        interval = true;
      } else {
        return {};
      }
      if (++stacked > 20) return Error("more than 20 quantifiers in a row");
      if (atom.kind == Kind::kAnchor) return Error("a quantifier after an anchor");
      RegexNode repeat = Wrap(Kind::kRepeat, std::move(atom));
      repeat.min = min;
      repeat.max = max;
      // Oniguruma: {n,m}? is lazy, {n}? is optional (ONIG_SYN_FIXED_INTERVAL_IS_GREEDY_ONLY), and a
      // + after an interval repeats it again.
      if (!(interval && min == max) && Skip("?")) {
        repeat.greed = Greed::kLazy;
      } else if (!interval && Skip("+")) {
        repeat.greed = Greed::kPossessive;
      }
      atom = std::move(repeat);
    }
    return {};
  }

  // {n}, {n,}, {n,m}, {,m}; absent and nothing consumed otherwise.
  std::optional<std::pair<uint32_t, uint32_t>> Interval() {
    size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<uint32_t> {
      uint64_t value = 0;
      const size_t begin = i;
      while (i < pattern_.size() && pattern_[i] >= '0' && pattern_[i] <= '9') {
        value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(pattern_[i] - '0'),
                                   kUnlimited - 1);
        ++i;
      }
      if (i == begin) return std::nullopt;
      return static_cast<uint32_t>(value);
    };
    const auto min = number();
    std::optional<uint32_t> max = min;
    bool comma = false;
    if (i < pattern_.size() && pattern_[i] == ',') {
      comma = true;
      ++i;
      max = number();
    }
    if (i >= pattern_.size() || pattern_[i] != '}' || (!min && !(comma && max)))
      return std::nullopt;
    at_ = i + 1;
    return std::pair(min.value_or(0), max.value_or(kUnlimited));
  }

  Result<RegexNode> Atom(int depth) {
    const char c = Peek();
    switch (c) {
      case '(':
        return Group(depth);
      case '[': {
        LS_TRY(CodePointRanges set, Class(depth + 1));
        return SetNode(std::move(set));
      }
      case '.': {
        ++at_;
        if (flags_.dot_all) return SetNode(CodePointRanges::All());
        return SetNode(CodePointRanges::Of('\n', '\n').Negated());
      }
      case '^':
        ++at_;
        return AnchorNode(RegexAnchor::kLineBegin);
      case '$':
        ++at_;
        return AnchorNode(RegexAnchor::kLineEnd);
      case '*':
      case '+':
      case '?':
        return Error("the quantifier `{}` with nothing before it", c);
      case '\\':
        return EscapedAtom();
      default: {
        const char32_t literal = NextCodePoint(pattern_, at_);
        return SetNode(Fold(CodePointRanges::Of(literal, literal)));
      }
    }
  }

  Result<RegexNode> Group(int depth) {
    const size_t begin = at_;
    ++at_;
    RegexNode look;
    look.kind = Kind::kLook;
    enum { kPlain, kLookAround, kAtomicGroup } type = kPlain;
    const Flags outer = flags_;
    if (Skip("?:")) {
    } else if (Skip("?=")) {
      type = kLookAround;
    } else if (Skip("?!")) {
      type = kLookAround;
      look.negative = true;
    } else if (Skip("?<=")) {
      type = kLookAround;
      look.behind = true;
    } else if (Skip("?<!")) {
      type = kLookAround;
      look.behind = look.negative = true;
    } else if (Skip("?>")) {
      type = kAtomicGroup;
    } else if (Starts("?<") || Starts("?'")) {
      const char close = Starts("?<") ? '>' : '\'';
      at_ += 2;
      const size_t name = at_;
      while (!End() && Peek() != close) ++at_;
      if (End() || at_ == name) return Error("a group without a name");
      ++at_;
    } else if (Starts("?~")) {
      return UnsupportedError("the regular expression `{}` uses an absent operator (?~",
                              Shortened());
    } else if (Starts("?")) {
      at_ = begin;
      LS_TRY(const bool isolated, ParseFlags());
      (void)isolated;  // Sequence() took the form without a colon
    }
    LS_TRY(RegexNode body, Alternation(depth + 1));
    flags_ = outer;
    if (!Skip(")")) return Error("a group that opens at byte {} and never closes", begin);
    if (type == kAtomicGroup) return Wrap(Kind::kAtomic, std::move(body));
    if (type == kLookAround) {
      look.children.push_back(std::move(body));
      return look;
    }
    return body;
  }

  Result<RegexNode> EscapedAtom() {
    ++at_;
    if (End()) return Error("a \\ at its end");
    const char c = Peek();
    switch (c) {
      case 'A':
        ++at_;
        return AnchorNode(RegexAnchor::kTextBegin);
      case 'z':
        ++at_;
        return AnchorNode(RegexAnchor::kTextEnd);
      case 'Z':
        ++at_;
        return AnchorNode(RegexAnchor::kTextEndOrNewline);
      case 'b':
        ++at_;
        return AnchorNode(RegexAnchor::kWordBoundary);
      case 'B':
        ++at_;
        return AnchorNode(RegexAnchor::kNoWordBoundary);
      case 'G':
        ++at_;
        return AnchorNode(RegexAnchor::kSearchBegin);
      default:
        break;
    }
    if ((c >= '1' && c <= '9') || c == 'k' || c == 'g' || c == 'X' || c == 'R' || c == 'K' ||
        c == 'y' || c == 'Y') {
      return UnsupportedError(
          "the regular expression `{}` uses \\{}, which is not supported (no "
          "back-references, \\g, \\K, \\R, \\X, \\y)",
          Shortened(), c);
    }
    if (c == 'N' || c == 'O') {
      ++at_;
      return SetNode(c == 'O' ? CodePointRanges::All() : CodePointRanges::Of('\n', '\n').Negated());
    }
    CodePointRanges set;
    LS_TRY(const auto literal, Escape(set));
    if (literal) set = CodePointRanges::Of(*literal, *literal);
    return SetNode(Fold(set));
  }

  // After the backslash. A code point, or absent and `set` is filled.
  Result<std::optional<uint32_t>> Escape(CodePointRanges& set) {
    const char c = Peek();
    const auto named = [&](std::string_view name, bool negate) -> std::optional<uint32_t> {
      set = *FindNamedSet(name);
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
        return Property(set);
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
        return UnsupportedError("the regular expression `{}` uses a control escape \\{}",
                                Shortened(), c);
      default:
        return static_cast<uint32_t>(NextCodePoint(pattern_, at_));
    }
  }

  Result<std::optional<uint32_t>> Hex() {
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

  Result<std::optional<uint32_t>> HexDigits(int at_least, int at_most) {
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

  Result<std::optional<uint32_t>> Property(CodePointRanges& set) {
    bool negate = Peek() == 'P';
    ++at_;
    if (!Skip("{")) return Error("\\p without {{");
    if (Skip("^")) negate = !negate;
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return Error("\\p{{ without }}");
    const std::string_view name = pattern_.substr(at_, close - at_);
    auto found = FindNamedSet(name);
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

  // At '['. Handles ^, ranges, nesting, && and [:posix:].
  Result<CodePointRanges> Class(int depth) {
    if (depth > kMaxDepth) return Error("classes nested deeper than {}", kMaxDepth);
    const size_t begin = at_++;
    const bool negate = Skip("^");
    CodePointRanges whole = CodePointRanges::All(), part;
    bool first = true, intersected = false;
    while (true) {
      if (End()) return Error("a class that opens at byte {} and never closes", begin);
      if (Peek() == ']' && !(first && HasLaterClose())) break;
      const bool was_first = first;
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
        LS_TRY(const CodePointRanges nested, Class(depth + 1));
        part.Add(nested);
        continue;
      }
      (void)was_first;
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
    part = Fold(part);
    if (negate) part = part.Negated();
    return part;
  }

  // "[]abc]": a ] that comes first is a literal when another one follows.
  bool HasLaterClose() const { return pattern_.find(']', at_ + 1) != std::string_view::npos; }

  Result<std::optional<uint32_t>> ClassAtom(CodePointRanges& set) {
    if (Peek() != '\\') return std::optional<uint32_t>(NextCodePoint(pattern_, at_));
    ++at_;
    if (End()) return Error("a \\ at its end");
    if (Peek() == 'b') {
      ++at_;
      return std::optional<uint32_t>(0x08);
    }
    return Escape(set);
  }

  Result<bool> Posix(CodePointRanges& part) {
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

  std::string_view pattern_;
  size_t at_ = 0;
  Flags flags_;
};

}  // namespace

Result<RegexNode> ParseRegex(std::string_view pattern) {
  if (const auto fault = FindUtf8Fault(pattern)) {
    return InputError("a regular expression is not UTF-8 at byte {}", fault->valid_up_to);
  }
  if (pattern.size() > 20'000) {
    return InputError("a regular expression has {} bytes; at most 20000 are accepted",
                      pattern.size());
  }
  return Parser(pattern).Run();
}

}  // namespace lockstep

// The parser of Oniguruma's syntax (OnigSyntaxOniguruma): pattern text to RegexNode. See its
// doc/RE.
#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/regex_characters.h"
#include "tokenizer/regex_program.h"

namespace lockstep {
namespace {

constexpr uint32_t kMaxRepeat = 100000;  // Oniguruma's ONIG_MAX_REPEAT_NUM

using Kind = RegexNode::Kind;

// Sequences whose case-insensitive match includes one other character (U+00DF and "ss", U+FB01 and
// "fi").
constexpr std::string_view kFoldingPairs[] = {"ss", "ff", "fi", "fl", "st"};

class Parser : private RegexCharacters {
 public:
  explicit Parser(std::string_view pattern) : RegexCharacters(pattern) {}

  Result<RegexNode> Run() {
    LS_TRY(RegexNode root, Alternation(0));
    if (at_ < pattern_.size()) return Error("an unmatched )");
    return root;
  }

 private:
  struct Flags {
    bool ignore_case = false, dot_all = false, extended = false;
  };

  static RegexNode SetNode(CodePointRanges set) {
    RegexNode node;
    node.kind = Kind::kSet;
    node.set = std::move(set);
    return node;
  }
  Result<RegexNode> LiteralNode(uint32_t c) const {
    CodePointRanges set = CodePointRanges::Of(c, c);
    if (flags_.ignore_case) LS_RETURN_IF_ERROR(Fold(set));
    return SetNode(std::move(set));
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

  Result<RegexNode> Alternation(int depth) {
    if (depth > kMaxRegexDepth) return Error("groups nested deeper than {}", kMaxRegexDepth);
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
      LS_RETURN_IF_ERROR(Quantifiers(atom, atom.kind == Kind::kAnchor && pattern_[begin] != '('));
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

  Status Quantifiers(RegexNode& atom, bool bare_anchor) {
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
      if (bare_anchor) return Error("a quantifier after an anchor");
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
        LS_TRY(CodePointRanges set, Class(depth + 1, flags_.ignore_case));
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
        return LiteralNode(literal);
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
    LS_TRY(const auto literal, Escape(set, /*in_class=*/false));
    // Oniguruma folds the case of literals and of classes in brackets, not of a lone \\p{Lu}.
    if (literal) return LiteralNode(*literal);
    return SetNode(std::move(set));
  }

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

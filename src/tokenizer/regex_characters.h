// RegexCharacters: the part of the regular-expression parser that reads single characters, escapes
// and classes in brackets. The grammar around them is in regex_parser.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace lockstep {

constexpr int kMaxRegexDepth = 100;  // of groups and nested classes

// What \w and \b call a word character outside brackets. Oniguruma looks it up in its table of
// Latin-1, where superscripts and fractions are word characters; between brackets it takes the
// Unicode property, where they are not.
CodePointRanges LoneWordCharacters();

class RegexCharacters {
 protected:
  explicit RegexCharacters(std::string_view pattern) : pattern_(pattern) {}

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

  // After the backslash. A code point, or absent and `set` is filled. in_class: between brackets.
  Result<std::optional<uint32_t>> Escape(CodePointRanges& set, bool in_class);
  // At '['. Handles ^, ranges, nesting, && and [:posix:].
  Result<CodePointRanges> Class(int depth, bool ignore_case);
  // Adds what equals a member without regard to case. Refuses a set with a character that also
  // equals several others ("ss" and sharp s).
  Status Fold(CodePointRanges& set) const;

  std::string_view pattern_;
  size_t at_ = 0;

 private:
  Result<std::optional<uint32_t>> Hex();
  Result<std::optional<uint32_t>> HexDigits(int at_least, int at_most);
  Result<std::optional<uint32_t>> Property(CodePointRanges& set, bool in_class);
  Result<std::optional<uint32_t>> ClassAtom(CodePointRanges& set);
  Result<bool> Posix(CodePointRanges& part);
  // "[]abc]": a ] that comes first is a literal when another one follows.
  bool HasLaterClose() const { return pattern_.find(']', at_ + 1) != std::string_view::npos; }
};

}  // namespace lockstep

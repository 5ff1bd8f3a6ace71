// Regex: the regular expressions of tokenizer files, compiled once and matched leftmost-first on
// UTF-8. The syntax and the meaning are those of Oniguruma (the engine inside `tokenizers`):
// alternatives in order, greedy, lazy and possessive quantifiers, classes with \p{..}, nesting and
// &&, (?i:..), groups, atomic groups, look-ahead, look-behind of fixed width, anchors. Captures are
// not kept; back-references, \X, \R, \K and case-insensitive foldings to several characters ("ss"
// and sharp s) are refused. Matching keeps its own stack and a budget of steps, so no pattern or
// text can hang or overflow it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lockstep {

struct RegexProgram;  // tokenizer/regex_program.h

class Regex {
 public:
  struct Match {
    size_t begin, end;  // bytes
  };

  static Result<Regex> Compile(std::string_view pattern);
  static Regex Literal(std::string_view text);  // matches exactly `text`

  // Every match from left to right, as Oniguruma's search loop finds them: they do not overlap, and
  // an empty match directly after a match is skipped. `text` must be valid UTF-8. Fails when the
  // budget (kStepsPerByte a byte and kStepsAtLeast) runs out.
  Status FindAll(std::string_view text, std::vector<Match>& matches) const;

  static constexpr uint64_t kStepsAtLeast = 10'000'000;
  static constexpr uint64_t kStepsPerByte = 200;

 private:
  std::shared_ptr<const RegexProgram> program_;  // immutable, shared by copies
};

}  // namespace lockstep

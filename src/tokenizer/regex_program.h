// What a pattern becomes on its way to the matcher: parser -> RegexNode tree -> RegexProgram.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace lockstep {

enum class Greed : uint8_t { kGreedy, kLazy, kPossessive };
enum class RegexAnchor : uint8_t {
  kLineBegin,         // ^
  kLineEnd,           // $
  kTextBegin,         // \A
  kTextEnd,           // \z
  kTextEndOrNewline,  // \Z
  kWordBoundary,      // \b
  kNoWordBoundary,    // \B
  kSearchBegin,       // \G
};

struct RegexNode {
  enum class Kind : uint8_t {
    kEmpty,
    kSet,          // one code point of `set`
    kSequence,     // children one after the other
    kAlternation,  // the first child that leads to a match
    kRepeat,       // children[0], min to max times
    kAnchor,
    kLook,    // children[0] ahead or behind, consuming nothing
    kAtomic,  // children[0], without giving back
  };
  Kind kind = Kind::kEmpty;
  CodePointRanges set;
  std::vector<RegexNode> children;
  uint32_t min = 0, max = 0;
  Greed greed = Greed::kGreedy;
  RegexAnchor anchor = RegexAnchor::kLineBegin;
  bool behind = false, negative = false;
};

constexpr uint32_t kUnlimited = ~uint32_t{0};

Result<RegexNode> ParseRegex(std::string_view pattern);

struct RegexInstruction {
  enum class Op : uint8_t {
    kMatch,       // the end of the program or of a sub-program
    kByte,        // the byte `a`
    kSet,         // one code point of sets[a]
    kRun,         // sets[a], min to max times; greedy, lazy or possessive
    kSplit,       // try a, then b
    kJump,        // a
    kSwitch,      // switches[a]: alternatives chosen by the next byte
    kAnchor,      // a: RegexAnchor
    kLook,        // sub-program at a, goes on at b
    kAtomic,      // sub-program at a, goes on at b
    kMark,        // marks[a] = position
    kProgressed,  // goes on at b only if the position moved since marks[a], else falls through
  };
  Op op = Op::kMatch;
  Greed greed = Greed::kGreedy;
  bool behind = false, negative = false;
  uint32_t a = 0, b = 0;
  uint32_t min = 0, max = 0;
};

// An alternation that looks at the next byte before it tries anything.
struct RegexSwitch {
  std::vector<uint32_t> targets;  // at most 64 alternatives
  std::array<uint64_t, 257>
      candidates{};  // bit k: targets[k] may match when this byte is next; 256: at the end
};

struct RegexProgram {
  std::vector<RegexInstruction> code;
  std::vector<CodePointSet> sets;
  std::vector<RegexSwitch> switches;
  uint32_t num_marks = 0;
  std::array<bool, 257> can_start{};  // whether a match can begin with this byte (256: at the end)
  std::string literal;                // not empty: the whole pattern is this text
};

Result<RegexProgram> CompileRegex(const RegexNode& root);

}  // namespace lockstep

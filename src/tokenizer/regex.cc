#include "tokenizer/regex.h"

#include <bit>
#include <cstring>

#include "base/utf8.h"
#include "tokenizer/regex_characters.h"
#include "tokenizer/regex_program.h"

namespace lockstep {
namespace {

using Op = RegexInstruction::Op;

// Backtracking over an explicit stack: a frame says where to go on when the current path fails.
class Matcher {
 public:
  Matcher(const RegexProgram& program, std::string_view text, uint64_t steps)
      : program_(program),
        text_(text),
        steps_(steps),
        marks_(program.num_marks, 0),
        word_(nullptr) {}

  bool exhausted() const { return steps_ == 0; }

  // Whether the program matches at `position`; then `end` is the end of the match.
  bool MatchAt(size_t position, size_t& end) {
    search_begin_ = position;
    stack_.clear();
    return Run(0, position, end);
  }

 private:
  struct Frame {
    enum class Kind : uint8_t {
      kGoTo,          // continue at pc
      kGiveBack,      // a greedy run that ends at `position` may shrink down to `low`
      kTakeMore,      // a lazy run may take one more code point (up to `low` of them)
      kAlternatives,  // the remaining alternatives `low` of switch pc
      kRestoreMark,   // marks[pc] = position
    };
    Kind kind;
    uint32_t pc;
    size_t position;
    uint64_t low;
  };

  uint8_t Byte(size_t i) const { return static_cast<uint8_t>(text_[i]); }

  // One code point of `set` at i: its length in bytes, or 0.
  size_t MatchSet(const CodePointSet& set, size_t i) const {
    if (i >= text_.size()) return 0;
    const uint8_t first = Byte(i);
    if (first < 0x80) return set.ContainsAscii(first) ? 1 : 0;
    size_t end = i;
    return set.Contains(NextCodePoint(text_, end)) ? end - i : 0;
  }

  bool Spend(uint64_t steps) {
    if (steps_ <= steps) {
      steps_ = 0;
      return false;
    }
    steps_ -= steps;
    return true;
  }

  bool Run(uint32_t pc, size_t position, size_t& end) {
    const size_t base = stack_.size();
    while (true) {
      if (!Spend(1)) return false;
      const RegexInstruction& in = program_.code[pc];
      bool failed = false;
      switch (in.op) {
        case Op::kMatch:
          end = position;
          stack_.resize(base);
          return true;
        case Op::kByte:
          if (position < text_.size() && Byte(position) == in.a) {
            ++position;
            ++pc;
          } else {
            failed = true;
          }
          break;
        case Op::kSet: {
          const size_t length = MatchSet(program_.sets[in.a], position);
          position += length;
          ++pc;
          failed = length == 0;
          break;
        }
        case Op::kRun:
          failed = !StartRun(in, pc, position);
          break;
        case Op::kSplit:
          stack_.push_back({Frame::Kind::kGoTo, in.b, position, 0});
          pc = in.a;
          break;
        case Op::kJump:
          pc = in.a;
          break;
        case Op::kSwitch: {
          const RegexSwitch& table = program_.switches[in.a];
          const uint64_t candidates =
              table.candidates[position < text_.size() ? Byte(position) : 256];
          failed = !TakeAlternative(in.a, candidates, position, pc);
          break;
        }
        case Op::kAnchor:
          failed = !Holds(static_cast<RegexAnchor>(in.a), position);
          ++pc;
          break;
        case Op::kLook: {
          const bool found = Look(in, position);
          if (steps_ == 0) return false;
          failed = found == in.negative;
          pc = in.b;
          break;
        }
        case Op::kAtomic: {
          size_t after = position;
          failed = !Run(in.a, position, after);
          if (steps_ == 0) return false;
          position = after;
          pc = in.b;
          break;
        }
        case Op::kMark:
          stack_.push_back({Frame::Kind::kRestoreMark, in.a, marks_[in.a], 0});
          marks_[in.a] = position;
          ++pc;
          break;
        case Op::kProgressed:
          pc = position != marks_[in.a] ? in.b : pc + 1;
          break;
      }
      if (failed && !Backtrack(base, pc, position)) return false;
    }
  }

  // Takes the next path from the stack down to `base`; false when there is none.
  bool Backtrack(size_t base, uint32_t& pc, size_t& position) {
    while (stack_.size() > base) {
      if (!Spend(1)) return false;
      Frame& frame = stack_.back();
      switch (frame.kind) {
        case Frame::Kind::kGoTo:
          pc = frame.pc;
          position = frame.position;
          stack_.pop_back();
          return true;
        case Frame::Kind::kGiveBack:
          StepBack(text_, frame.position);
          pc = frame.pc;
          position = frame.position;
          if (frame.position <= frame.low) stack_.pop_back();
          return true;
        case Frame::Kind::kTakeMore: {
          const RegexInstruction& in = program_.code[frame.pc];
          const size_t length = MatchSet(program_.sets[in.a], frame.position);
          if (length == 0) {
            stack_.pop_back();
            continue;
          }
          frame.position += length;
          pc = frame.pc + 1;
          position = frame.position;
          if (--frame.low == 0) stack_.pop_back();
          return true;
        }
        case Frame::Kind::kAlternatives: {
          const Frame taken = frame;
          stack_.pop_back();
          position = taken.position;
          return TakeAlternative(taken.pc, taken.low, position, pc);
        }
        case Frame::Kind::kRestoreMark:
          marks_[frame.pc] = frame.position;
          stack_.pop_back();
          continue;
      }
    }
    return false;
  }

  bool TakeAlternative(uint32_t index, uint64_t candidates, size_t position, uint32_t& pc) {
    if (candidates == 0) return false;
    const uint64_t rest = candidates & (candidates - 1);
    if (rest != 0) stack_.push_back({Frame::Kind::kAlternatives, index, position, rest});
    pc = program_.switches[index].targets[static_cast<size_t>(std::countr_zero(candidates))];
    return true;
  }

  bool StartRun(const RegexInstruction& in, uint32_t& pc, size_t& position) {
    const CodePointSet& set = program_.sets[in.a];
    const size_t begin = position;
    uint32_t count = 0;
    const uint32_t wanted = in.greed == Greed::kLazy ? in.min : in.max;
    size_t low = position;  // a greedy run may not shrink below it
    while (count < wanted) {
      const size_t length = MatchSet(set, position);
      if (length == 0) break;
      position += length;
      if (++count == in.min) low = position;
    }
    if (!Spend(position - begin)) return false;
    if (count < in.min) return false;
    if (in.greed == Greed::kGreedy && position > low) {
      stack_.push_back({Frame::Kind::kGiveBack, pc + 1, position, low});
    } else if (in.greed == Greed::kLazy && in.max > in.min) {
      stack_.push_back({Frame::Kind::kTakeMore, pc, position, in.max - in.min});
    }
    ++pc;
    return true;
  }

  bool Look(const RegexInstruction& in, size_t position) {
    size_t begin = position;
    if (in.behind) {
      for (uint32_t i = 0; i < in.min; ++i) {
        if (begin == 0) return false;
        StepBack(text_, begin);
      }
      if (!Spend(in.min)) return false;
    }
    size_t end = begin;
    return Run(in.a, begin, end) && (!in.behind || end == position);
  }

  bool IsWord(size_t i) {  // the code point that starts at i
    if (word_ == nullptr) {
      static const CodePointSet kWord(LoneWordCharacters());
      word_ = &kWord;
    }
    return i < text_.size() && word_->Contains(NextCodePoint(text_, i));
  }

  bool Holds(RegexAnchor anchor, size_t position) {
    const bool at_end = position == text_.size();
    switch (anchor) {
      case RegexAnchor::kTextBegin:
        return position == 0;
      case RegexAnchor::kTextEnd:
        return at_end;
      case RegexAnchor::kTextEndOrNewline:
        return at_end || (position + 1 == text_.size() && text_[position] == '\n');
      case RegexAnchor::kLineBegin:  // Oniguruma: not after a newline that ends the text
        return position == 0 || (text_[position - 1] == '\n' && !at_end);
      case RegexAnchor::kLineEnd:
        return at_end || text_[position] == '\n';
      case RegexAnchor::kSearchBegin:
        return position == search_begin_;
      case RegexAnchor::kWordBoundary:
      case RegexAnchor::kNoWordBoundary: {
        bool before = false;
        if (position > 0) {
          size_t i = position;
          StepBack(text_, i);
          before = IsWord(i);
        }
        const bool boundary = before != (!at_end && IsWord(position));
        return boundary == (anchor == RegexAnchor::kWordBoundary);
      }
    }
    return false;
  }

  const RegexProgram& program_;
  std::string_view text_;
  uint64_t steps_;
  std::vector<size_t> marks_;
  std::vector<Frame> stack_;
  size_t search_begin_ = 0;
  const CodePointSet* word_;
};

void FindLiteral(std::string_view text, std::string_view literal,
                 std::vector<Regex::Match>& matches) {
  for (size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    matches.push_back({at, at + literal.size()});
  }
}

}  // namespace

Result<Regex> Regex::Compile(std::string_view pattern) {
  LS_TRY(const RegexNode root, ParseRegex(pattern));
  LS_TRY(RegexProgram program, CompileRegex(root));
  Regex regex;
  regex.program_ = std::make_shared<const RegexProgram>(std::move(program));
  return regex;
}

Regex Regex::Literal(std::string_view text) {
  RegexProgram program;
  if (text.empty()) {  // matches nothing at every place, like the empty pattern
    program.code.push_back({.op = Op::kMatch});
    program.can_start.fill(true);
  }
  program.literal = text;
  Regex regex;
  regex.program_ = std::make_shared<const RegexProgram>(std::move(program));
  return regex;
}

Status Regex::FindAll(std::string_view text, std::vector<Match>& matches) const {
  const RegexProgram& program = *program_;
  if (!program.literal.empty()) {
    FindLiteral(text, program.literal, matches);
    return {};
  }
  const uint64_t budget = std::max<uint64_t>(kStepsAtLeast, kStepsPerByte * text.size());
  Matcher matcher(program, text, budget);
  size_t at = 0;
  size_t last_end = ~size_t{0};
  while (true) {
    // Search from `at`.
    size_t end = 0;
    size_t begin = at;
    bool found = false;
    while (true) {
      const size_t next = begin < text.size() ? static_cast<uint8_t>(text[begin]) : 256;
      if (program.can_start[next] && matcher.MatchAt(begin, end)) {
        found = true;
        break;
      }
      if (matcher.exhausted()) {
        return UnsupportedError(
            "the tokenizer's regular expression backtracks too much on this text ({} steps on {} "
            "bytes, stopped "
            "near byte {}); shorten the text or mend the pattern",
            budget, text.size(), begin);
      }
      if (begin >= text.size()) break;
      begin += Utf8Length(text[begin]);
    }
    if (!found) return {};
    if (begin == end && end == last_end) {  // no empty match directly after a match
      if (at >= text.size()) return {};
      at = begin + (begin < text.size() ? Utf8Length(text[begin]) : 1);
      if (at > text.size()) return {};
      continue;
    }
    matches.push_back({begin, end});
    at = last_end = end;
  }
}

}  // namespace lockstep

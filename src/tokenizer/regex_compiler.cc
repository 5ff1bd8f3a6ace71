// RegexNode tree to RegexProgram: counted groups are copied out, runs of one class become one
// instruction, alternations get a table by their next byte.
#include <algorithm>
#include <bitset>

#include "base/utf8.h"
#include "tokenizer/regex_program.h"

namespace lockstep {
namespace {

constexpr size_t kMaxInstructions = 100'000;
constexpr size_t kMaxSets = 2'000;
constexpr size_t kMaxSwitches =
    500;  // 2 KB each; further alternations try their branches one by one
constexpr size_t kEndOfText = 256;

using Kind = RegexNode::Kind;
using Op = RegexInstruction::Op;

// Which bytes can come first when a node matches (256: the end of the text).
struct First {
  std::bitset<257> bytes;
  bool nullable = false;  // may match without consuming: then what follows decides
};

uint8_t LeadByte(uint32_t c) {
  std::string bytes;
  AppendUtf8(c, bytes);
  return static_cast<uint8_t>(bytes[0]);
}

First FirstOf(const RegexNode& node) {
  First first;
  switch (node.kind) {
    case Kind::kEmpty:
    case Kind::kAnchor:
    case Kind::kLook:
      first.nullable = true;
      break;
    case Kind::kSet:
      for (const auto& [low, high] : node.set.ranges()) {
        for (uint32_t c = low; c <= high && c < 128; ++c) first.bytes.set(c);
        if (high < 128) continue;
        // U+D800..DFFF have no UTF-8; their neighbours share the lead byte ED.
        const uint8_t end = LeadByte(high >= 0xD800 && high <= 0xDFFF ? 0xD7FF : high);
        const uint32_t start = std::max<uint32_t>(low, 128);
        for (int b = LeadByte(start >= 0xD800 && start <= 0xDFFF ? 0xD7FF : start); b <= end; ++b) {
          first.bytes.set(static_cast<size_t>(b));
        }
      }
      break;
    case Kind::kSequence:
      first.nullable = true;
      for (const RegexNode& child : node.children) {
        const First next = FirstOf(child);
        first.bytes |= next.bytes;
        if (!next.nullable) {
          first.nullable = false;
          break;
        }
      }
      break;
    case Kind::kAlternation:
      for (const RegexNode& child : node.children) {
        const First next = FirstOf(child);
        first.bytes |= next.bytes;
        first.nullable |= next.nullable;
      }
      break;
    case Kind::kRepeat:
      first = FirstOf(node.children[0]);
      first.nullable |= node.min == 0;
      break;
    case Kind::kAtomic:
      first = FirstOf(node.children[0]);
      break;
  }
  return first;
}

// The width of a look-behind in code points; absent when it is not fixed.
std::optional<uint32_t> FixedWidth(const RegexNode& node) {
  switch (node.kind) {
    case Kind::kEmpty:
    case Kind::kAnchor:
    case Kind::kLook:
      return 0;
    case Kind::kSet:
      return 1;
    case Kind::kAtomic:
      return FixedWidth(node.children[0]);
    case Kind::kSequence: {
      uint64_t sum = 0;
      for (const RegexNode& child : node.children) {
        const auto width = FixedWidth(child);
        if (!width) return std::nullopt;
        sum += *width;
      }
      if (sum > 100'000) return std::nullopt;
      return static_cast<uint32_t>(sum);
    }
    case Kind::kAlternation: {
      const auto width = FixedWidth(node.children[0]);
      for (const RegexNode& child : node.children) {
        if (!width || FixedWidth(child) != width) return std::nullopt;
      }
      return width;
    }
    case Kind::kRepeat: {
      const auto width = FixedWidth(node.children[0]);
      if (!width || node.min != node.max || uint64_t{*width} * node.min > 100'000)
        return std::nullopt;
      return *width * node.min;
    }
  }
  return std::nullopt;
}

class Compiler {
 public:
  Result<RegexProgram> Run(const RegexNode& root) {
    LS_RETURN_IF_ERROR(Emit(root));
    LS_RETURN_IF_ERROR(Add({.op = Op::kMatch}));
    const First first = FirstOf(root);
    for (size_t b = 0; b <= kEndOfText; ++b)
      program_.can_start[b] = first.nullable || first.bytes[b];
    return std::move(program_);
  }

 private:
  Status Add(RegexInstruction instruction) {
    if (program_.code.size() >= kMaxInstructions) {
      return UnsupportedError(
          "a regular expression is too large once its repetitions are written out "
          "(more than {} instructions)",
          kMaxInstructions);
    }
    program_.code.push_back(instruction);
    return {};
  }
  uint32_t Here() const { return static_cast<uint32_t>(program_.code.size()); }

  Result<uint32_t> SetIndex(const CodePointRanges& set) {
    const auto same = [&](const CodePointRanges& other) {
      return std::equal(set.ranges().begin(), set.ranges().end(), other.ranges().begin(),
                        other.ranges().end(),
                        [](auto a, auto b) { return a.first == b.first && a.last == b.last; });
    };
    const auto found = std::find_if(known_sets_.begin(), known_sets_.end(), same);
    if (found != known_sets_.end()) return static_cast<uint32_t>(found - known_sets_.begin());
    if (known_sets_.size() >= kMaxSets) {
      return UnsupportedError("a regular expression has more than {} different classes", kMaxSets);
    }
    known_sets_.push_back(set);
    program_.sets.emplace_back(set);
    return static_cast<uint32_t>(known_sets_.size() - 1);
  }

  Status Emit(const RegexNode& node) {
    switch (node.kind) {
      case Kind::kEmpty:
        return {};
      case Kind::kAnchor:
        return Add({.op = Op::kAnchor, .a = static_cast<uint32_t>(node.anchor)});
      case Kind::kSet:
        return EmitSet(node);
      case Kind::kSequence:
        for (const RegexNode& child : node.children) LS_RETURN_IF_ERROR(Emit(child));
        return {};
      case Kind::kAlternation:
        return EmitAlternation(node);
      case Kind::kRepeat:
        return EmitRepeat(node);
      case Kind::kLook:
        return EmitLook(node);
      case Kind::kAtomic:
        return EmitAtomic([&] { return Emit(node.children[0]); });
    }
    return {};
  }

  Status EmitSet(const RegexNode& node) {
    const auto ranges = node.set.ranges();
    const bool one = ranges.size() == 1 && ranges[0].first == ranges[0].last;
    if (one && !(ranges[0].first >= 0xD800 && ranges[0].first <= 0xDFFF)) {
      std::string bytes;
      AppendUtf8(ranges[0].first, bytes);
      for (const char byte : bytes) {
        LS_RETURN_IF_ERROR(Add({.op = Op::kByte, .a = static_cast<uint8_t>(byte)}));
      }
      return {};
    }
    LS_TRY(const uint32_t index, SetIndex(node.set));
    return Add({.op = Op::kSet, .a = index});
  }

  Status EmitAlternation(const RegexNode& node) {
    const size_t count = node.children.size();
    const bool by_byte = count <= 64 && program_.switches.size() < kMaxSwitches;
    const uint32_t head = Here();
    RegexSwitch table;
    if (by_byte) LS_RETURN_IF_ERROR(Add({.op = Op::kSwitch}));
    std::vector<uint32_t> exits;
    for (size_t k = 0; k < count; ++k) {
      const bool last = k + 1 == count;
      const uint32_t split = Here();
      if (by_byte) {
        const First first = FirstOf(node.children[k]);
        for (size_t b = 0; b <= kEndOfText; ++b) {
          if (first.nullable || first.bytes[b]) table.candidates[b] |= uint64_t{1} << k;
        }
        table.targets.push_back(Here());
      } else if (!last) {
        LS_RETURN_IF_ERROR(Add({.op = Op::kSplit, .a = split + 1}));
      }
      LS_RETURN_IF_ERROR(Emit(node.children[k]));
      if (!last) {
        exits.push_back(Here());
        LS_RETURN_IF_ERROR(Add({.op = Op::kJump}));
        if (!by_byte) program_.code[split].b = Here();
      }
    }
    for (const uint32_t exit : exits) program_.code[exit].a = Here();
    if (by_byte) {
      program_.code[head].a = static_cast<uint32_t>(program_.switches.size());
      program_.switches.push_back(std::move(table));
    }
    return {};
  }

  Status EmitRepeat(const RegexNode& node) {
    const RegexNode& body = node.children[0];
    if (node.max == 0) return {};
    if (body.kind == Kind::kSet) {
      LS_TRY(const uint32_t index, SetIndex(body.set));
      return Add(
          {.op = Op::kRun, .greed = node.greed, .a = index, .min = node.min, .max = node.max});
    }
    if (node.greed == Greed::kPossessive) {
      RegexNode greedy = node;
      greedy.greed = Greed::kGreedy;
      return EmitAtomic([&] { return EmitRepeat(greedy); });
    }
    for (uint32_t i = 0; i < node.min; ++i) {
      const uint32_t before = Here();
      LS_RETURN_IF_ERROR(Emit(body));
      if (Here() == before) break;  // an empty body: once is as good as many times
    }
    const auto split = [&](uint32_t at, uint32_t into, uint32_t past) {
      program_.code[at].a = node.greed == Greed::kGreedy ? into : past;
      program_.code[at].b = node.greed == Greed::kGreedy ? past : into;
    };
    if (node.max == kUnlimited) {
      const bool may_be_empty = FirstOf(body).nullable;
      const uint32_t mark = program_.num_marks;
      const uint32_t head = Here();
      LS_RETURN_IF_ERROR(Add({.op = Op::kSplit}));
      if (may_be_empty) {
        ++program_.num_marks;
        LS_RETURN_IF_ERROR(Add({.op = Op::kMark, .a = mark}));
      }
      LS_RETURN_IF_ERROR(Emit(body));
      if (may_be_empty) {
        LS_RETURN_IF_ERROR(Add({.op = Op::kProgressed, .a = mark, .b = head}));
      } else {
        LS_RETURN_IF_ERROR(Add({.op = Op::kJump, .a = head}));
      }
      split(head, head + 1, Here());
      return {};
    }
    std::vector<uint32_t> splits;
    for (uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(Here());
      LS_RETURN_IF_ERROR(Add({.op = Op::kSplit}));
      LS_RETURN_IF_ERROR(Emit(body));
    }
    for (const uint32_t at : splits) split(at, at + 1, Here());
    return {};
  }

  template <typename EmitBody>
  Status EmitAtomic(EmitBody&& emit_body) {
    const uint32_t head = Here();
    LS_RETURN_IF_ERROR(Add({.op = Op::kAtomic, .a = head + 1}));
    LS_RETURN_IF_ERROR(emit_body());
    LS_RETURN_IF_ERROR(Add({.op = Op::kMatch}));
    program_.code[head].b = Here();
    return {};
  }

  Status EmitOneLook(const RegexNode& look, const RegexNode& body) {
    uint32_t width = 0;
    if (look.behind) {
      const auto fixed = FixedWidth(body);
      if (!fixed)
        return UnsupportedError("a regular expression has a look-behind of variable width");
      width = *fixed;
    }
    const uint32_t head = Here();
    LS_RETURN_IF_ERROR(Add({.op = Op::kLook,
                            .behind = look.behind,
                            .negative = look.negative,
                            .a = head + 1,
                            .min = width}));
    LS_RETURN_IF_ERROR(Emit(body));
    LS_RETURN_IF_ERROR(Add({.op = Op::kMatch}));
    program_.code[head].b = Here();
    return {};
  }

  // Alternatives of a look-behind may differ in width: each becomes a look-behind of its own.
  Status EmitLook(const RegexNode& node) {
    const RegexNode& body = node.children[0];
    if (!node.behind || body.kind != Kind::kAlternation) return EmitOneLook(node, body);
    if (node.negative) {
      for (const RegexNode& branch : body.children) LS_RETURN_IF_ERROR(EmitOneLook(node, branch));
      return {};
    }
    RegexNode alternation;
    alternation.kind = Kind::kAlternation;
    for (const RegexNode& branch : body.children) {
      RegexNode look;
      look.kind = Kind::kLook;
      look.behind = true;
      look.children.push_back(branch);
      if (branch.kind == Kind::kAlternation) return EmitOneLook(node, body);
      alternation.children.push_back(std::move(look));
    }
    return EmitAlternation(alternation);
  }

  RegexProgram program_;
  std::vector<CodePointRanges> known_sets_;
};

}  // namespace

Result<RegexProgram> CompileRegex(const RegexNode& root) { return Compiler().Run(root); }

}  // namespace lockstep

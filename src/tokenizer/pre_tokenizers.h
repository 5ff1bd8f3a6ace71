// The pre-tokenizers of tokenizer.json: steps that cut a piece of text into words. Step 4 of the
// encode pipeline; the model sees one word at a time.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace lockstep {

// What becomes of the parts that a pattern matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PatternSplit {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct SetSplit {  // every code point of the set is a match of its own
  CodePointSet set;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct ByteLevelSplit {
  Regex pattern;  // of GPT-2
  bool add_prefix_space = true;
  bool use_regex = true;
  bool map_bytes = true;  // off: the model takes raw bytes
};
enum class PrependScheme { kFirst, kNever, kAlways };
struct MetaspaceSplit {
  std::string replacement;
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};
struct WhitespaceSplit {};  // runs of word characters and runs of other visible characters
struct ScriptSplit {};
struct FixedLengthSplit {
  uint64_t length = 5;
};

using PreTokenizer = std::variant<PatternSplit, SetSplit, ByteLevelSplit, MetaspaceSplit,
                                  WhitespaceSplit, ScriptSplit, FixedLengthSplit>;

// The pattern of GPT-2 (encoder.py), which ByteLevel uses.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A Sequence is flat here: its steps in order, each on the pieces of the one before.
Status PreTokenize(const std::vector<PreTokenizer>& steps, Pieces& pieces);

}  // namespace lockstep

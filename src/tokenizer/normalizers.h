// The normalizers of tokenizer.json: steps that rewrite a piece of text before it is cut into
// words. Step 2 of the encode pipeline, after the added tokens have been cut out of the raw text.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "tokenizer/aligned_text.h"
#include "tokenizer/normal_forms.h"
#include "tokenizer/precompiled.h"
#include "tokenizer/regex.h"

namespace lockstep {

struct LowercaseNormalizer {};
struct StripNormalizer {
  bool left = true, right = true;
};
struct StripAccentsNormalizer {};
struct NmtNormalizer {};
struct ByteLevelNormalizer {};
struct ReplaceNormalizer {
  Regex pattern;
  std::string content;
};
struct PrependNormalizer {
  std::string prefix;
};
struct BertNormalizer {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};

using Normalizer = std::variant<NormalForm, LowercaseNormalizer, StripNormalizer,
                                StripAccentsNormalizer, NmtNormalizer, ByteLevelNormalizer,
                                ReplaceNormalizer, PrependNormalizer, BertNormalizer, Precompiled>;

// A Sequence is flat here: its steps in order.
Status Normalize(const std::vector<Normalizer>& steps, AlignedText& text);

}  // namespace lockstep

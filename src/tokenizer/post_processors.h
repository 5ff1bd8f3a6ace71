// The post-processors of tokenizer.json: they add special tokens around the text ("<bos> $A") and
// trim offsets. The last step of the encode pipeline.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

struct EncodedToken {
  int32_t id;
  uint32_t begin = 0, end = 0;  // code points of the original text; only when offsets are wanted
  std::string_view text;        // of the token; only when offsets are wanted
};

struct ByteLevelPost {
  bool trim_offsets = true, add_prefix_space = true;
};
struct TemplatePost {
  std::vector<int32_t> before, after;  // the ids around the text ("single")
};
struct BertPost {
  int32_t cls = 0, sep = 0;
};
struct RobertaPost {
  int32_t cls = 0, sep = 0;
  bool trim_offsets = true, add_prefix_space = true;
};
using PostProcessor = std::variant<ByteLevelPost, TemplatePost, BertPost, RobertaPost>;

// A Sequence is flat here. with_offsets: the tokens carry offsets and texts.
void PostProcess(const std::vector<PostProcessor>& steps, bool add_special_tokens,
                 bool with_offsets, std::vector<EncodedToken>& tokens);

}  // namespace lockstep

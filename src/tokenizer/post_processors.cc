#include "tokenizer/post_processors.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace lockstep {
namespace {

bool IsBlank(char32_t c) {
  return c == kByteAlphabet.char_of_byte[' '] || NamedSet("rust_whitespace").Contains(c);
}

// tokenizers: pre_tokenizers/byte_level.rs, process_offsets.
void TrimOffsets(bool add_prefix_space, std::vector<EncodedToken>& tokens) {
  for (size_t k = 0; k < tokens.size(); ++k) {
    EncodedToken& token = tokens[k];
    uint32_t leading = 0, trailing = 0;
    for (size_t i = 0; i < token.text.size() && IsBlank(NextCodePoint(token.text, i));) ++leading;
    for (size_t end = token.text.size(); end > 0; ++trailing) {
      StepBack(token.text, end);
      size_t i = end;
      if (!IsBlank(NextCodePoint(token.text, i))) break;
    }
    if (leading > 0) {
      // One space at the beginning may be the one that the pre-tokenizer added.
      if ((k == 0 || token.begin == 0) && add_prefix_space && leading == 1) leading = 0;
      token.begin = std::min(token.begin + leading, token.end);
    }
    if (trailing > 0 && token.end >= trailing)
      token.end = std::max(token.end - trailing, token.begin);
  }
}

struct Run {
  bool add_special_tokens, with_offsets;
  std::vector<EncodedToken>& tokens;

  void Surround(const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
    if (!add_special_tokens) return;
    std::vector<EncodedToken> result;
    result.reserve(before.size() + tokens.size() + after.size());
    for (const int32_t id : before) result.push_back({.id = id});
    result.insert(result.end(), tokens.begin(), tokens.end());
    for (const int32_t id : after) result.push_back({.id = id});
    tokens = std::move(result);
  }
  void operator()(const ByteLevelPost& post) {
    if (with_offsets && post.trim_offsets) TrimOffsets(post.add_prefix_space, tokens);
  }
  void operator()(const TemplatePost& post) { Surround(post.before, post.after); }
  void operator()(const BertPost& post) { Surround({post.cls}, {post.sep}); }
  void operator()(const RobertaPost& post) {
    if (with_offsets && post.trim_offsets) TrimOffsets(post.add_prefix_space, tokens);
    Surround({post.cls}, {post.sep});
  }
};

}  // namespace

void PostProcess(const std::vector<PostProcessor>& steps, bool add_special_tokens,
                 bool with_offsets, std::vector<EncodedToken>& tokens) {
  for (const PostProcessor& step : steps)
    std::visit(Run{add_special_tokens, with_offsets, tokens}, step);
}

}  // namespace lockstep

// Chat templates: a conversation becomes the text that the model was trained on. Does what
// transformers 5.24's apply_chat_template does around Jinja; jinja.h renders. The text already
// holds its special tokens: encode it without adding any.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "jinja/jinja.h"

namespace lockstep {

struct ChatTemplateInput {
  Json messages = Json::array();  // a list of {"role": ..., "content": ...}; must not be empty
  Json tools;                     // a list of JSON schemas, or null: none given
  Json documents;                 // a list of {"title": ..., "text": ...}, or null
  bool add_generation_prompt = false;
  Json kwargs = Json::object();  // the caller's own template variables (enable_thinking, ...)
  Json special_tokens = Json::object();  // bos_token, eos_token, ...; kwargs of that name win

  // The text ends inside the last message, so that the model continues it.
  bool continue_final_message = false;
  std::string continue_field = "content";  // or "reasoning_content", ...

  // transformers 5.24 drops keys of messages whose value is null; earlier versions let templates
  // see none. True keeps them.
  bool keep_null_keys = false;

  jinja::Clock clock = jinja::SystemClock();  // what strftime_now tells
};

using RenderedChat = jinja::Rendered;

class ChatTemplate {
 public:
  static jinja::Expected<ChatTemplate> Parse(std::string_view source);

  // The error's kind says whether the template refused the conversation (kRaiseException), misses
  // something (kUndefined), or is at fault itself; its line is the template's.
  jinja::Expected<RenderedChat> Apply(const ChatTemplateInput& input,
                                      const jinja::Limits& limits = {}) const;

  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::string source, jinja::Template parsed)
      : source_(std::move(source)), template_(std::move(parsed)) {}
  std::string source_;
  jinja::Template template_;
};

// Both steps, with errors as sentences that begin with `place` (the file of the template).
Result<RenderedChat> ApplyChatTemplate(std::string_view source, const ChatTemplateInput& input,
                                       std::string_view place);

}  // namespace lockstep

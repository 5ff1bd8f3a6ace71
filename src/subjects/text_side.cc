#include "subjects/text_side.h"

#include "tokenizer/chat_template.h"

namespace lockstep {
namespace {

Status NeedTokenizer(const TextModel& text) {
  if (text.tokenizer) return {};
  if (!text.notes.empty()) return InputError("{}", text.notes.front());
  return InputError(
      "the checkpoint has no tokenizer (tokenizer.json, or vocab.json with merges.txt); give token "
      "ids instead of text");
}

}  // namespace

Result<std::string> RenderChatMessages(const TextModel& text, const Json& messages) {
  if (!text.chat_template)
    return UnsupportedError("the checkpoint has no chat template; give the text raw");
  ChatTemplateInput input;
  input.messages = messages;
  input.special_tokens = text.special_tokens;
  input.add_generation_prompt = true;
  LS_TRY(RenderedChat rendered, ApplyChatTemplate(*text.chat_template, input, "the chat template"));
  return std::move(rendered.text);
}

Result<std::string> RenderUserMessage(const TextModel& text, std::string_view content) {
  return RenderChatMessages(text, Json::array({{{"role", "user"}, {"content", content}}}));
}

Result<std::vector<int32_t>> EncodeText(const TextModel& text, std::string_view utf8,
                                        bool add_special_tokens) {
  LS_RETURN_IF_ERROR(NeedTokenizer(text));
  return text.tokenizer->Encode(utf8, {.add_special_tokens = add_special_tokens});
}

Result<std::string> DecodeIds(const TextModel& text, std::span<const int32_t> ids) {
  LS_RETURN_IF_ERROR(NeedTokenizer(text));
  return text.tokenizer->Decode(ids);
}

}  // namespace lockstep

#include "subjects/text_side.h"

#include <algorithm>

#include "formats/describe.h"
#include "tokenizer/chat_template.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

Status NeedTokenizer(const TextModel& text) {
  if (text.tokenizer) return {};
  if (!text.notes.empty()) return InputError("{}", text.notes.front());
  return InputError(
      "the checkpoint has no tokenizer (tokenizer.json, or vocab.json with merges.txt); give token "
      "ids instead of text");
}

bool IsUntrusted(const Json& message) { return message["role"] != "system"; }

// Where the untrusted messages lie in `rendered`. Their text may occur anywhere, in the template's
// own words too, so the template is rendered once more with marks in their places: where the marks
// replaced by the texts give `rendered`, the marks' places are the texts'. Otherwise absent.
std::optional<std::vector<TextRange>> FindContents(const TextModel& text, const Json& messages,
                                                   const std::string& rendered) {
  // Private-use characters: in no template, and no space to trim.
  const auto mark = [](size_t i) { return fmt::format("\uE0C5{}\uE0C6", i); };
  Json marked = messages;
  for (size_t i = 0; i < marked.size(); ++i)
    if (IsUntrusted(marked[i])) marked[i]["content"] = mark(i);
  const auto with_marks = RenderChatMessages(text, marked);
  if (!with_marks) return std::nullopt;
  std::string built;
  std::vector<TextRange> ranges;
  size_t at = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!IsUntrusted(messages[i])) continue;
    const size_t found = with_marks->find(mark(i), at);
    if (found == std::string::npos) return std::nullopt;
    built += with_marks->substr(at, found - at);
    at = found + mark(i).size();
    std::string content = messages[i]["content"].get<std::string>();
    // Many templates trim.
    if (rendered.compare(built.size(), content.size(), content) != 0) {
      const size_t first = std::min(content.find_first_not_of(kSpaces), content.size());
      content = content.substr(first, content.find_last_not_of(kSpaces) + 1 - first);
    }
    ranges.push_back({built.size(), built.size() + content.size()});
    built += content;
  }
  built += with_marks->substr(at);
  if (built != rendered) return std::nullopt;
  return ranges;
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
                                        bool add_special_tokens, Trust trust) {
  LS_RETURN_IF_ERROR(NeedTokenizer(text));
  const TextRange all{0, utf8.size()};
  EncodeOptions options{.add_special_tokens = add_special_tokens};
  if (trust == Trust::kUntrusted) options.untrusted.ranges = std::span(&all, 1);
  return text.tokenizer->Encode(utf8, options);
}

Result<std::vector<int32_t>> EncodeChat(const TextModel& text, const Json& messages, Trust trust) {
  LS_TRY(const std::string rendered, RenderChatMessages(text, messages));
  if (trust == Trust::kTrusted) return EncodeText(text, rendered, false);
  LS_RETURN_IF_ERROR(NeedTokenizer(text));
  // Tokens that are not special but that the template writes ("<tool_call>") are its own as well.
  std::vector<int32_t> written;
  for (const AddedToken& token : text.tokenizer->added_tokens())
    if (text.chat_template->find(token.content) != std::string::npos) written.push_back(token.id);
  const auto ranges = FindContents(text, messages, rendered);
  if (!ranges) {
    for (const Json& message : messages)
      for (const AddedToken& token : text.tokenizer->added_tokens())
        if (IsUntrusted(message) &&
            (token.special || std::binary_search(written.begin(), written.end(), token.id)) &&
            message["content"].get<std::string>().find(token.content) != std::string::npos)
          return UsageError(
              "the message holds the special token {}, and the chat template changes the message, "
              "so that it cannot be told from the template's own",
              Quoted(token.content));
    return EncodeText(text, rendered, false);
  }
  return text.tokenizer->Encode(rendered,
                                {.add_special_tokens = false, .untrusted = {*ranges, written}});
}

TextModel LoadTextModelOrNote(const Checkpoint& checkpoint) {
  Result<TextModel> text = LoadTextModel(checkpoint);
  if (text) return *std::move(text);
  TextModel none;
  none.notes.push_back(std::move(text).error().message);
  return none;
}

Result<std::string> DecodeIds(const TextModel& text, std::span<const int32_t> ids) {
  LS_RETURN_IF_ERROR(NeedTokenizer(text));
  return text.tokenizer->Decode(ids);
}

}  // namespace lockstep

#include "tokenizer/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>

#include "jinja/unicode.h"

namespace lockstep {
namespace {

using jinja::Expected;
using jinja::PythonError;

// Names under which a message's reasoning is passed; the first that is set fills the first of them.
constexpr std::array<std::string_view, 3> kReasoningFields = {"reasoning_content", "thinking",
                                                              "reasoning"};
// Marks the place where the final message ends; the text is cut there.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

const Json* Find(const Json& object, std::string_view key) {
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

// {"thinking": r, **message, "reasoning_content": r}
Json AliasReasoning(const Json& message) {
  const Json* reasoning = nullptr;
  for (const std::string_view field : kReasoningFields) {
    reasoning = Find(message, field);
    if (reasoning) break;
  }
  if (!reasoning) return message;
  Json out = Json::object();
  out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) out[key] = value;
  out["reasoning_content"] = *reasoning;
  return out;
}

Expected<Json> Normalize(const ChatTemplateInput& input) {
  if (!input.messages.is_array()) return PythonError("the messages must be a list");
  if (input.messages.empty())
    return PythonError(
        "Cannot apply chat template to an empty conversation. Provide at least one message.");
  Json chat = Json::array();
  for (const Json& message : input.messages) {
    if (!message.is_object()) return PythonError("Chat messages should be objects");
    Json kept = Json::object();
    for (const auto& [key, value] : message.items())
      if (input.keep_null_keys || !value.is_null()) kept[key] = value;
    chat.push_back(AliasReasoning(kept));
  }
  return chat;
}

// Appends the tag to the final message and returns the text that stood there.
Expected<std::string> TagFinalMessage(Json& message, const std::string& field,
                                      std::string_view source) {
  const Json* found = Find(message, field);
  if (!found)
    return PythonError(
        "continue_final_message is set but the final message has no \"{}\" to continue!", field);
  std::vector<std::string> fields = {field};
  if (std::find(kReasoningFields.begin(), kReasoningFields.end(), field) !=
      kReasoningFields.end()) {
    fields.clear();
    for (const std::string_view name : kReasoningFields) {
      const Json* copy = Find(message, name);
      if (copy && *copy == *found) fields.emplace_back(name);
    }
  }
  if (std::none_of(fields.begin(), fields.end(), [&](const std::string& name) {
        return source.find(name) != std::string_view::npos;
      }))
    return PythonError(
        "continue_final_message is set to \"{}\" but this is not an accepted field in the "
        "chat_template",
        field);
  if (found->is_array()) {  // parts: the last one with a text is continued
    Json& parts = message[field];
    for (size_t i = parts.size(); i-- > 0;) {
      Json& part = parts[i];
      if (part.is_object() ? !part.contains("text")
                           : !(part.is_string() && part.get_ref<const std::string&>().find(
                                                       "text") != std::string::npos))
        continue;
      if (!part.is_object() || !part["text"].is_string())
        return PythonError("the text of the final message is not a string");
      std::string text = part["text"].get<std::string>();
      part["text"] = text + std::string(kContinueTag);
      return text;
    }
    return PythonError(
        "continue_final_message is set but we could not find any text to continue in the final "
        "message!");
  }
  if (!found->is_string()) return PythonError("the final message is not a string");
  std::string text = found->get<std::string>();
  for (const std::string& name : fields) message[name] = text + std::string(kContinueTag);
  return text;
}

Expected<std::string> CutAtTag(std::string rendered, std::string_view final_text) {
  const std::string_view tag = kContinueTag.substr(0, kContinueTag.size() - 1);
  const std::string_view stripped = jinja::Strip(final_text, jinja::Side::kBoth);
  const size_t at = rendered.rfind(tag);
  if (at == std::string::npos || rendered.find(stripped) == std::string::npos)
    return PythonError(
        "continue_final_message is set but the final message does not appear in the chat after "
        "applying the chat template! This can happen if the chat template deletes portions of the "
        "final message.");
  const bool keeps_space = rendered.compare(at, kContinueTag.size(), kContinueTag) == 0;
  rendered.resize(at);
  if (keeps_space) return rendered;
  // The template trims what it writes, so the space before the cut goes too.
  rendered.resize(jinja::Strip(rendered, jinja::Side::kRight).size());
  return rendered;
}

}  // namespace

Expected<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  LS_TRY(jinja::Template parsed, jinja::Template::Parse(source));
  return ChatTemplate(std::string(source), std::move(parsed));
}

Expected<RenderedChat> ChatTemplate::Apply(const ChatTemplateInput& input,
                                           const jinja::Limits& limits) const {
  LS_TRY(Json chat, Normalize(input));
  if (input.continue_final_message && input.add_generation_prompt)
    return PythonError("continue_final_message and add_generation_prompt are not compatible");
  for (const auto& [name, list] :
       {std::pair{"tools", &input.tools}, std::pair{"documents", &input.documents}}) {
    if (list->is_null()) continue;
    const bool objects =
        list->is_array() &&
        std::all_of(list->begin(), list->end(), [](const Json& x) { return x.is_object(); });
    if (!objects) return PythonError("{} should be a list of objects", name);
  }
  Json variables = Json::object();
  for (const Json* source : {&input.special_tokens, &input.kwargs}) {
    if (!source->is_object()) return PythonError("template variables must be an object");
    for (const auto& [key, value] : source->items()) variables[key] = value;
  }
  for (const std::string_view name : {"messages", "tools", "documents", "add_generation_prompt"})
    if (variables.contains(std::string(name)))
      return PythonError("the template variable {} cannot be set by hand", name);

  std::string final_text;
  if (input.continue_final_message) {
    LS_TRY(final_text, TagFinalMessage(chat.back(), input.continue_field, source_));
  }
  variables["messages"] = std::move(chat);
  variables["tools"] = input.tools;
  variables["documents"] = input.documents;
  variables["add_generation_prompt"] = input.add_generation_prompt;
  LS_TRY(RenderedChat rendered, template_.Render(variables, input.clock, limits));
  if (!input.continue_final_message) return rendered;
  LS_TRY(rendered.text, CutAtTag(std::move(rendered.text), final_text));
  const size_t length = jinja::CountCodePoints(rendered.text);
  for (auto& [start, end] : rendered.generation_spans) {
    start = std::min(start, length);
    end = std::min(end, length);
  }
  return rendered;
}

Result<RenderedChat> ApplyChatTemplate(std::string_view source, const ChatTemplateInput& input,
                                       std::string_view place) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed) return tl::unexpected(parsed.error().ToError(place));
  auto rendered = parsed->Apply(input);
  if (!rendered) return tl::unexpected(rendered.error().ToError(place));
  return *std::move(rendered);
}

}  // namespace lockstep

// The text side in the few forms that subjects and verbs need: a conversation through the chat
// template, text to ids, ids to text; with errors that say what is missing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "model/text_model.h"

namespace lockstep {

// `messages` is a list of {"role", "content"}. The text ends where the assistant's answer begins
// and already holds its special tokens.
Result<std::string> RenderChatMessages(const TextModel& text, const Json& messages);
Result<std::string> RenderUserMessage(const TextModel& text, std::string_view content);

Result<std::vector<int32_t>> EncodeText(const TextModel& text, std::string_view utf8,
                                        bool add_special_tokens);
// Special tokens included, as transformers' decode does by default.
Result<std::string> DecodeIds(const TextModel& text, std::span<const int32_t> ids);

}  // namespace lockstep

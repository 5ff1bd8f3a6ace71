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

// What transformers does by default is kTrusted: special tokens that are written in a text are
// tokens. Of an untrusted text they are plain text, so that nobody can end his turn and begin
// another in somebody else's name ("<|im_end|>").
enum class Trust { kTrusted, kUntrusted };

Result<std::vector<int32_t>> EncodeText(const TextModel& text, std::string_view utf8,
                                        bool add_special_tokens, Trust trust = Trust::kTrusted);

// A conversation to ids. Untrusted is what every message but the system's says; the special tokens
// of the template stay. Fails where a template changes an untrusted text that holds special tokens,
// so that they cannot be found again.
Result<std::vector<int32_t>> EncodeChat(const TextModel& text, const Json& messages, Trust trust);

// For what can do without text: a TextModel that fails to load becomes an empty one with the reason
// as its note.
TextModel LoadTextModelOrNote(const Checkpoint& checkpoint);

// Special tokens included, as transformers' decode does by default.
Result<std::string> DecodeIds(const TextModel& text, std::span<const int32_t> ids);

}  // namespace lockstep

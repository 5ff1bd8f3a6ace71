#include "export/genai/tokenizer_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/quoted.h"
#include "export/data_file.h"
#include "model/gguf_text.h"
#include "tokenizer/gguf_tokenizer_json.h"

namespace lockstep::genai {
namespace {

namespace fs = std::filesystem;

// tokenizer_class of tokenizer_config.json that the runtime knows; any other stops it
// ("Unsupported tokenizer class").
constexpr std::string_view kKnownClasses[] = {
    "ChatGLMTokenizer", "CodeGenTokenizer", "GPT2Tokenizer",           "GPT2TokenizerFast",
    "GemmaTokenizer",   "LlamaTokenizer",   "LlamaTokenizerFast",      "PreTrainedTokenizer",
    "Qwen2Tokenizer",   "T5Tokenizer",      "PreTrainedTokenizerFast", "TokenizersBackend",
    "WhisperTokenizer",
};
constexpr const char* kAnyClass = "PreTrainedTokenizerFast";

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Status CopyFile(const fs::path& from, const fs::path& to) {
  LS_TRY(const auto file, MappedFile::Open(from));
  return WriteSmallFile(to, file->text());
}

Status WriteTokenizerConfig(const fs::path& from, const fs::path& to,
                            std::vector<std::string>& notes) {
  if (!IsFile(from))
    return WriteSmallFile(to, fmt::format("{{\"tokenizer_class\": \"{}\"}}\n", kAnyClass));
  LS_TRY(const std::string text, ReadTextFile(from));
  LS_TRY(Json json, ParseJson(text, from.string()));
  if (!json.is_object()) return InputError("{}: expected a JSON object", from.string());
  const auto at = json.find("tokenizer_class");
  const std::string name = at != json.end() && at->is_string() ? at->get<std::string>() : "";
  const bool known =
      at == json.end() || std::find(std::begin(kKnownClasses), std::end(kKnownClasses), name) !=
                              std::end(kKnownClasses);
  if (known) return WriteSmallFile(to, text);
  notes.push_back(fmt::format(
      "tokenizer_config.json: tokenizer_class {} is {} here, because onnxruntime-genai refuses it",
      at->is_string() ? Quoted(name) : "that is no text", Quoted(kAnyClass)));
  json["tokenizer_class"] = kAnyClass;
  return WriteSmallFile(to, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// A GGUF file's vocabulary as a tokenizer.json, and its template.
Status WriteOfGguf(const Checkpoint& checkpoint, const fs::path& folder,
                   std::vector<std::string>& notes) {
  LS_TRY(const GgufVocabulary vocabulary, ReadGgufVocabulary(checkpoint));
  if (vocabulary.tokens.empty()) {
    notes.push_back("the checkpoint has no tokenizer: the folder takes and gives token ids only");
    return {};
  }
  const auto json = GgufTokenizerJson(vocabulary, checkpoint.path.string());
  if (!json) {
    notes.push_back(fmt::format("no tokenizer is written, and the folder takes ids only: {}",
                                json.error().message));
    return {};
  }
  LS_RETURN_IF_ERROR(WriteSmallFile(folder / "tokenizer.json", *json));
  LS_TRY(const TextModel text, LoadTextModel(checkpoint));
  Json config = {{"tokenizer_class", kAnyClass}};
  for (const auto& [name, token] : text.special_tokens.items()) config[name] = token;
  LS_RETURN_IF_ERROR(
      WriteSmallFile(folder / "tokenizer_config.json",
                     config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  if (!text.chat_template) return {};
  return WriteSmallFile(folder / "chat_template.jinja", *text.chat_template);
}

// Measured on onnxruntime-genai 0.18: encode() runs no post-processor, whatever the files say.
void NoteAddedTokens(const Checkpoint& checkpoint, std::vector<std::string>& notes) {
  const auto text = LoadTextModel(checkpoint);
  if (!text || !text->tokenizer) return;
  const auto ids = text->tokenizer->Encode("");
  if (!ids || ids->empty()) return;
  notes.push_back(fmt::format(
      "the tokenizer puts {} (id {}) around a text, and onnxruntime-genai's encode does not: add "
      "it "
      "where no chat template writes it",
      Quoted(text->tokenizer->TokenText(ids->front()).value_or("")), fmt::join(*ids, ", ")));
}

}  // namespace

Status WriteTokenizerFiles(const Checkpoint& checkpoint, const fs::path& folder,
                           std::vector<std::string>& notes) {
  if (checkpoint.kind == Checkpoint::Kind::kGguf) {
    LS_RETURN_IF_ERROR(WriteOfGguf(checkpoint, folder, notes));
    NoteAddedTokens(checkpoint, notes);
    return {};
  }
  const fs::path& from = checkpoint.path;
  if (from.empty() || !IsFile(from / "tokenizer.json")) {
    notes.push_back(
        "the checkpoint has no tokenizer.json: the folder takes and gives token ids only");
    return {};
  }
  LS_RETURN_IF_ERROR(CopyFile(from / "tokenizer.json", folder / "tokenizer.json"));
  LS_RETURN_IF_ERROR(WriteTokenizerConfig(from / "tokenizer_config.json",
                                          folder / "tokenizer_config.json", notes));
  for (const char* name : {"chat_template.jinja", "chat_template.json"})
    if (IsFile(from / name)) LS_RETURN_IF_ERROR(CopyFile(from / name, folder / name));
  NoteAddedTokens(checkpoint, notes);
  return {};
}

}  // namespace lockstep::genai

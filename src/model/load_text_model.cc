#include <array>
#include <filesystem>

#include "base/mapped_file.h"
#include "model/gguf_text.h"
#include "model/text_model.h"
#include "tokenizer/gpt2_files.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The names transformers gives to templates, in tokenizer_config.json and special_tokens_map.json.
constexpr std::array kSpecialTokenKeys = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// The first of these names that is in the folder; empty when none is.
fs::path FirstThatExists(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (Exists(folder / name)) return folder / name;
  return {};
}

Result<Json> ReadObject(const fs::path& path) {
  LS_TRY(const std::string text, ReadTextFile(path));
  LS_TRY(Json json, ParseJson(text, path.string()));
  if (!json.is_object())
    return InputError("{}: expected an object, found {}", path.string(), json.type_name());
  return json;
}

// A token is written as its text or as an object with its text under "content".
std::optional<std::string> TokenText(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object()) return std::nullopt;
  const auto content = token.find("content");
  if (content == token.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

void TakeSpecialTokens(const Json& config, Json& out) {
  for (const char* key : kSpecialTokenKeys)
    if (const auto found = config.find(key); found != config.end())
      if (auto text = TokenText(*found)) out[key] = *std::move(text);
  // Lists of further ones, and maps of further named ones (image_token, ...).
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto found = config.find(key);
    if (found == config.end()) continue;
    if (found->is_array()) {
      Json list = Json::array();
      for (const Json& token : *found)
        if (auto text = TokenText(token)) list.push_back(*std::move(text));
      if (!list.empty()) out["additional_special_tokens"] = std::move(list);
    } else if (found->is_object()) {
      for (const auto& [name, token] : found->items())
        if (auto text = TokenText(token)) out[name] = *std::move(text);
    }
  }
}

// A template, or a list of named ones of which "default" is meant.
std::optional<std::string> TemplateOf(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const Json& entry : *found) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("name"), text = entry.find("template");
    if (name != entry.end() && *name == "default" && text != entry.end() && text->is_string())
      return text->get<std::string>();
  }
  return std::nullopt;
}

Status LoadTokenizer(const fs::path& folder, TextModel& out) {
  if (const fs::path path = folder / "tokenizer.json"; Exists(path)) {
    LS_TRY(const auto file, MappedFile::Open(path));
    LS_TRY(out.tokenizer, LoadTokenizerJson(file->text(), path.string()));
    out.tokenizer_source = "tokenizer.json";
    return {};
  }
  const fs::path vocabulary = FirstThatExists(folder, {"vocab.json", "encoder.json"});
  const fs::path merges = FirstThatExists(folder, {"merges.txt", "vocab.bpe"});
  if (!vocabulary.empty() && !merges.empty()) {
    LS_TRY(const auto vocabulary_file, MappedFile::Open(vocabulary));
    LS_TRY(const auto merges_file, MappedFile::Open(merges));
    LS_TRY(out.tokenizer,
           LoadGpt2Tokenizer(vocabulary_file->text(), merges_file->text(), vocabulary.string()));
    out.tokenizer_source = vocabulary.filename().string() + " and " + merges.filename().string();
    return {};
  }
  if (const fs::path found = FirstThatExists(folder, {"tokenizer.model", "spiece.model"});
      !found.empty())
    out.notes.push_back(fmt::format(
        "{}: a SentencePiece file, and no tokenizer.json: text cannot be tokenized; make one by "
        "loading the folder with transformers' AutoTokenizer and calling save_pretrained",
        found.string()));
  return {};
}

Result<TextModel> LoadFromFolder(const fs::path& folder) {
  TextModel out;
  LS_RETURN_IF_ERROR(LoadTokenizer(folder, out));
  // The later file wins.
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!Exists(folder / name)) continue;
    LS_TRY(const Json config, ReadObject(folder / name));
    TakeSpecialTokens(config, out.special_tokens);
    if (auto chat_template = TemplateOf(config)) out.chat_template = std::move(chat_template);
  }
  // A file of its own goes before the key, as in transformers; the JSON file is the older form.
  if (const fs::path path = folder / "chat_template.jinja"; Exists(path)) {
    LS_TRY(out.chat_template, ReadTextFile(path));
  } else if (const fs::path json = folder / "chat_template.json";
             !out.chat_template && Exists(json)) {
    LS_TRY(const Json config, ReadObject(json));
    out.chat_template = TemplateOf(config);
  }
  return out;
}

}  // namespace

Result<TextModel> LoadTextModel(const Checkpoint& checkpoint) {
  TextModel out;
  if (checkpoint.kind == Checkpoint::Kind::kGguf) {
    LS_TRY(out, LoadGgufTextModel(checkpoint));
  } else {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(checkpoint.path, ignored);
    LS_TRY(out, LoadFromFolder(is_folder ? checkpoint.path : checkpoint.path.parent_path()));
  }
  if (out.tokenizer)
    out.notes.insert(out.notes.end(), out.tokenizer->notes().begin(), out.tokenizer->notes().end());
  return out;
}

}  // namespace lockstep

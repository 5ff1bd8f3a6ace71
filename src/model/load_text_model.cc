#include <filesystem>

#include "base/mapped_file.h"
#include "model/gguf_text.h"
#include "model/text_model.h"
#include "tokenizer/gpt2_files.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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

Result<TokenizerConfig> ReadConfig(const fs::path& path) {
  LS_TRY(const std::string text, ReadTextFile(path));
  return ParseTokenizerConfig(text, path.string());
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
    LS_TRY(const TokenizerConfig config, ReadConfig(folder / name));
    for (const auto& [key, text] : config.special_tokens) out.special_tokens[key] = text;
    if (!config.additional_special_tokens.empty())
      out.special_tokens["additional_special_tokens"] = config.additional_special_tokens;
    if (auto chat_template = config.DefaultTemplate()) out.chat_template = std::move(chat_template);
  }
  // A file of its own goes before the key, as in transformers; the JSON file is the older form.
  if (const fs::path path = folder / "chat_template.jinja"; Exists(path)) {
    LS_TRY(out.chat_template, ReadTextFile(path));
  } else if (const fs::path json = folder / "chat_template.json";
             !out.chat_template && Exists(json)) {
    LS_TRY(const TokenizerConfig config, ReadConfig(json));
    out.chat_template = config.DefaultTemplate();
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

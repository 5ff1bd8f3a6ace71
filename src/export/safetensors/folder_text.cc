#include "export/safetensors/folder_text.h"

#include <system_error>

#include "base/json.h"
#include "base/mapped_file.h"
#include "export/data_file.h"
#include "export/probe_texts.h"
#include "model/gguf_text.h"
#include "tokenizer/gguf_tokenizer_json.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Beside the weights; whatever of them is there is copied.
constexpr const char* kTextFiles[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "encoder.json",
    "vocab.bpe",
};

Status WriteJson(const fs::path& path, const Json& json) {
  return WriteSmallFile(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

// generation_config.json lies elsewhere where the model comes out of an ONNX graph.
Status CopyTextFiles(const Model& model, const fs::path& folder) {
  std::error_code error;
  const fs::path& path = model.checkpoint.path;
  const fs::path from = fs::is_directory(path, error) ? path : path.parent_path();
  for (const char* name : kTextFiles) {
    if (!fs::is_regular_file(from / name, error)) continue;
    LS_TRY(const auto file, MappedFile::Open(from / name));
    LS_RETURN_IF_ERROR(WriteSmallFile(folder / name, file->text()));
  }
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation, error) || !model.checkpoint.generation_config.is_object()) return {};
  return WriteJson(generation, model.checkpoint.generation_config);
}

Status WriteGenerationConfig(const ModelSpec& spec, const fs::path& folder) {
  Json json = Json::object();
  json["_from_model_config"] = true;
  if (spec.tokens.bos) json["bos_token_id"] = *spec.tokens.bos;
  if (spec.tokens.eos.size() == 1) json["eos_token_id"] = spec.tokens.eos[0];
  if (spec.tokens.eos.size() > 1) json["eos_token_id"] = spec.tokens.eos;
  if (spec.tokens.pad) json["pad_token_id"] = *spec.tokens.pad;
  return WriteJson(folder / "generation_config.json", json);
}

Status WriteTokenizer(const Model& model, const TextModel& text, const fs::path& folder) {
  const std::string place = model.checkpoint.path.string();
  LS_TRY(const GgufVocabulary vocabulary, ReadGgufVocabulary(model.checkpoint));
  LS_TRY(const std::string json, GgufTokenizerJson(vocabulary, place));
  LS_TRY(const Tokenizer back, LoadTokenizerJson(json, (folder / "tokenizer.json").string()));
  LS_TRY(const std::string difference, FirstDifferentProbe(*text.tokenizer, back, {}));
  if (!difference.empty())
    return UnsupportedError("{}: tokenizer.json would read {} otherwise than the GGUF", place,
                            difference);
  return WriteSmallFile(folder / "tokenizer.json", json);
}

Status WriteTokenizerConfig(const TextModel& text, const fs::path& folder) {
  Json json = Json::object();
  json["tokenizer_class"] = "PreTrainedTokenizerFast";
  json["clean_up_tokenization_spaces"] = false;
  for (const auto& [name, token] : text.special_tokens.items()) json[name] = token;
  if (text.chat_template) {
    json["chat_template"] = *text.chat_template;
    LS_RETURN_IF_ERROR(WriteSmallFile(folder / "chat_template.jinja", *text.chat_template));
  }
  return WriteJson(folder / "tokenizer_config.json", json);
}

}  // namespace

Status WriteFolderText(const Model& model, const fs::path& folder,
                       std::vector<std::string>& notes) {
  if (model.checkpoint.kind == Checkpoint::Kind::kHuggingFace) return CopyTextFiles(model, folder);
  LS_RETURN_IF_ERROR(WriteGenerationConfig(model.spec, folder));
  LS_TRY(const TextModel text, LoadTextModel(model.checkpoint));
  if (!text.tokenizer) {
    notes.push_back("the model has no tokenizer: the folder takes and gives token ids only");
    return {};
  }
  if (Status written = WriteTokenizer(model, text, folder); !written) {
    notes.push_back("the tokenizer is not written: " + written.error().message);
    return {};
  }
  return WriteTokenizerConfig(text, folder);
}

}  // namespace lockstep

#include "export/gguf/tokenizer_keys.h"

#include <simdjson.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/mapped_file.h"
#include "base/quoted.h"
#include "export/probe_texts.h"
#include "model/gguf_text.h"
#include "model/text_model.h"
#include "tokenizer/gguf_tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// Where several names have the same rules the one that llama.cpp knows longest is written.
constexpr std::string_view kFirstNames[] = {
    "gpt-2",     "llama-bpe",   "qwen2",       "smollm",       "starcoder",
    "gpt-4o",    "tekken",      "deepseek-v3", "deepseek-llm", "deepseek-coder",
    "command-r", "chatglm-bpe", "falcon",      "bloom",        "default"};

std::vector<const GgufPreTokenizer*> PreTokenizersInOrder() {
  std::vector<const GgufPreTokenizer*> order;
  const auto rows = GgufPreTokenizers();
  for (const std::string_view name : kFirstNames)
    for (const GgufPreTokenizer& row : rows)
      if (row.name == name) order.push_back(&row);
  for (const GgufPreTokenizer& row : rows) {
    // The same rules under another name give the same answer.
    const bool known = std::any_of(order.begin(), order.end(), [&](const GgufPreTokenizer* other) {
      return other->patterns.data() == row.patterns.data() && other->nfc == row.nfc &&
             other->ignore_merges == row.ignore_merges;
    });
    if (!known) order.push_back(&row);
  }
  return order;
}

// What tokenizer.json (or vocab.json and merges.txt) says that the Tokenizer does not show.
struct Source {
  std::vector<std::string> merges;  // "left right", in order
  bool byte_level = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

using simdjson::dom::element;

// Whether a step of this type is anywhere in a pre-tokenizer or decoder.
bool HasStep(const element& step, std::string_view type) {
  std::string_view name;
  if (step["type"].get(name) == simdjson::SUCCESS && name == type) return true;
  for (const char* list : {"pretokenizers", "decoders"}) {
    simdjson::dom::array steps;
    if (step[list].get(steps) != simdjson::SUCCESS) continue;
    for (const element inner : steps)
      if (HasStep(inner, type)) return true;
  }
  return false;
}

// The tokenizer's own reader has accepted the file: what it wants is there.
Result<Source> ReadTokenizerJson(const fs::path& path) {
  LS_TRY(const auto file, MappedFile::Open(path));
  simdjson::dom::parser parser;
  element root, model, step;
  if (parser.parse(simdjson::padded_string(file->text())).get(root) != simdjson::SUCCESS ||
      root["model"].get(model) != simdjson::SUCCESS)
    return InputError("{}: expected a tokenizer with a \"model\"", path.string());
  std::string_view type = "BPE";
  if (model["type"].get(type) == simdjson::SUCCESS && type != "BPE")
    return UnsupportedError(
        "{}: the tokenizer's model is {}, expected BPE: GGUF's other vocabularies are not written",
        path.string(), Quoted(type));
  Source source;
  simdjson::dom::array merges;
  if (model["merges"].get(merges) == simdjson::SUCCESS) {
    for (const element merge : merges) {
      std::string_view line, left, right;
      if (merge.get(line) == simdjson::SUCCESS) {
        source.merges.emplace_back(line);
      } else if (merge.at(0).get(left) == simdjson::SUCCESS &&
                 merge.at(1).get(right) == simdjson::SUCCESS) {
        source.merges.push_back(fmt::format("{} {}", left, right));
      }
    }
  }
  for (const char* part : {"decoder", "pre_tokenizer"})
    if (root[part].get(step) == simdjson::SUCCESS && HasStep(step, "ByteLevel"))
      source.byte_level = true;
  const auto flag = [&](const char* key) {
    bool value = false;
    return model[key].get(value) == simdjson::SUCCESS && value;
  };
  source.byte_fallback = flag("byte_fallback");
  source.ignore_merges = flag("ignore_merges");
  return source;
}

// GPT-2's vocab.bpe (merges.txt): "left right", a line each.
Result<Source> ReadMergesFile(const fs::path& path) {
  Source source{.byte_level = true};
  LS_TRY(const std::string text, ReadTextFile(path));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !line.starts_with("#version")) source.merges.push_back(std::move(line));
  }
  return source;
}

Result<Source> ReadSource(const fs::path& folder, std::string_view tokenizer_source) {
  if (tokenizer_source == "tokenizer.json") return ReadTokenizerJson(folder / "tokenizer.json");
  std::error_code ignored;
  const bool merges = fs::exists(folder / "merges.txt", ignored);
  return ReadMergesFile(folder / (merges ? "merges.txt" : "vocab.bpe"));
}

bool IsByteToken(std::string_view text) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') && hex(text[3]) &&
         hex(text[4]);
}

// tokens and token_type: one for each row of the embedding.
void AddTokens(const Tokenizer& tokenizer, size_t rows, bool bytes, std::optional<int64_t> unk,
               GgufValues& values) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::unordered_map<int32_t, bool> added;  // id -> special
  for (const AddedToken& token : tokenizer.added_tokens()) added[token.id] = token.special;
  for (size_t id = 0; id < rows; ++id) {
    const auto text = tokenizer.TokenText(static_cast<int64_t>(id));
    if (!text) {
      tokens.push_back(fmt::format("[PAD{}]", id));
      types.push_back(kGgufUnused);
      continue;
    }
    tokens.emplace_back(*text);
    const auto is_added = added.find(static_cast<int32_t>(id));
    int32_t type = kGgufNormal;
    if (bytes && IsByteToken(*text)) type = kGgufByte;
    if (is_added != added.end()) type = is_added->second ? kGgufControl : kGgufUserDefined;
    if (bytes && unk && static_cast<size_t>(*unk) == id) type = kGgufUnknown;
    types.push_back(type);
  }
  values.SetStrings("tokenizer.ggml.tokens", tokens);
  values.SetIntegers("tokenizer.ggml.token_type", types);
}

// SentencePiece merges the pair whose joined text has the best score: the rank of the first merge
// that makes it, counted down.
void AddScores(const Tokenizer& tokenizer, size_t rows, const Source& source, GgufValues& values) {
  std::vector<float> scores(rows, 0);
  std::vector<bool> scored(rows);
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    std::string joined = source.merges[rank];
    const size_t space = joined.find(' ', 1);
    if (space == std::string::npos) continue;
    joined.erase(space, 1);
    const auto id = tokenizer.TokenId(joined);
    if (!id || static_cast<size_t>(*id) >= rows || scored[static_cast<size_t>(*id)]) continue;
    scored[static_cast<size_t>(*id)] = true;
    scores[static_cast<size_t>(*id)] = -static_cast<float>(rank + 1);
  }
  values.SetNumbers("tokenizer.ggml.scores", scores);
}

// The tokenizer that a reader of the file will have.
Result<TextModel> ReadBack(const GgufValues& values) {
  Checkpoint file;
  file.kind = Checkpoint::Kind::kGguf;
  file.path = "the file";
  file.gguf = values.View();
  return LoadGgufTextModel(file);
}

// Tries the settings that `variants` make one after the other; the first with which the file
// encodes as the model's tokenizer does stays.
Result<bool> FindVariant(const Tokenizer& tokenizer,
                         std::span<const std::function<void(GgufValues&)>> variants,
                         GgufValues& values) {
  for (const auto& apply : variants) {
    apply(values);
    const auto text = ReadBack(values);
    if (!text || !text->tokenizer) continue;
    LS_TRY(const std::string difference,
           FirstDifferentProbe(tokenizer, *text->tokenizer, {.add_special_tokens = false}));
    if (difference.empty()) return true;
  }
  return false;
}

std::optional<int64_t> IdIn(const GgufValues& values, std::string_view key) {
  const GgufMetadata metadata = values.View();
  const GgufValue* value = metadata.Find(fmt::format("{}{}", kPrefix, key));
  return value != nullptr ? value->AsInt() : std::nullopt;
}

// Which special tokens stand around a text.
Status AddSpecialTokens(const Tokenizer& tokenizer, const std::string& place, GgufValues& values) {
  constexpr std::string_view kText = "Hello";
  LS_TRY(const auto plain, tokenizer.Encode(kText, {.add_special_tokens = false}));
  LS_TRY(const auto full, tokenizer.Encode(kText));
  const auto at = std::search(full.begin(), full.end(), plain.begin(), plain.end());
  const std::vector<int32_t> before(full.begin(), at);
  const std::vector<int32_t> after(at == full.end() ? at : at + static_cast<int64_t>(plain.size()),
                                   full.end());
  for (const auto& [ids, key, flag] :
       {std::tuple(&before, "bos_token_id", "tokenizer.ggml.add_bos_token"),
        {&after, "eos_token_id", "tokenizer.ggml.add_eos_token"}}) {
    values.SetBool(flag, !ids->empty());
    if (ids->empty()) continue;
    const auto id = IdIn(values, key);
    if (ids->size() != 1 || id != int64_t{ids->front()})
      return UnsupportedError(
          "{}: the tokenizer puts token {} around a text, but the model's {} is {}: GGUF can only "
          "add that one",
          place, ids->front(), key, id ? std::to_string(*id) : "absent");
  }
  return {};
}

// Special tokens that the spec knows nothing of.
void AddOtherIds(const TextModel& text, size_t rows, GgufValues& values) {
  constexpr std::pair<const char*, std::string_view> kIds[] = {
      {"unk_token", "unknown_token_id"},
      {"sep_token", "seperator_token_id"},  // llama.cpp's spelling
      {"cls_token", "cls_token_id"},
      {"mask_token", "mask_token_id"},
  };
  for (const auto& [name, key] : kIds) {
    const auto token = text.special_tokens.find(name);
    if (token == text.special_tokens.end() || !token->is_string()) continue;
    const auto id = text.tokenizer->TokenId(token->get<std::string>());
    if (id && static_cast<size_t>(*id) < rows)
      values.SetInteger(fmt::format("{}{}", kPrefix, key), static_cast<uint32_t>(*id));
  }
}

Status AddVocabulary(const Model& model, const TextModel& text, GgufValues& values) {
  const std::string place = model.checkpoint.path.string();
  const Tokenizer& tokenizer = *text.tokenizer;
  const auto rows = static_cast<size_t>(model.spec.embedding.vocab_size);
  if (tokenizer.vocab_size() > rows)
    return UnsupportedError(
        "{}: the tokenizer has {} tokens and the embedding {} rows: a GGUF holds no token without "
        "a row",
        place, tokenizer.vocab_size(), rows);
  std::error_code ignored;
  const fs::path folder = fs::is_directory(model.checkpoint.path, ignored)
                              ? model.checkpoint.path
                              : model.checkpoint.path.parent_path();
  LS_TRY(const Source source, ReadSource(folder, text.tokenizer_source));
  if (!source.byte_level && !source.byte_fallback)
    return UnsupportedError(
        "{}: the tokenizer is neither byte-level BPE nor BPE with byte fallback, which are the two "
        "that GGUF files hold here",
        place);
  AddOtherIds(text, rows, values);
  const bool spm = !source.byte_level;
  values.SetString("tokenizer.ggml.model", spm ? "llama" : "gpt2");
  AddTokens(tokenizer, rows, spm, IdIn(values, "unknown_token_id"), values);
  std::vector<std::function<void(GgufValues&)>> variants;
  if (spm) {
    values.SetString("tokenizer.ggml.pre", "default");
    AddScores(tokenizer, rows, source, values);
    for (const bool space : {true, false})
      variants.emplace_back(
          [space](GgufValues& v) { v.SetBool("tokenizer.ggml.add_space_prefix", space); });
  } else {
    values.SetStrings("tokenizer.ggml.merges", source.merges);
    auto rows = PreTokenizersInOrder();
    std::stable_partition(rows.begin(), rows.end(), [&](const GgufPreTokenizer* row) {
      return row->ignore_merges == source.ignore_merges;
    });
    for (const GgufPreTokenizer* row : rows)
      variants.emplace_back([row](GgufValues& v) { v.SetString("tokenizer.ggml.pre", row->name); });
  }
  // Until the right one is found nothing is put around a text.
  values.SetBool("tokenizer.ggml.add_bos_token", false);
  values.SetBool("tokenizer.ggml.add_eos_token", false);
  LS_TRY(const bool found, FindVariant(tokenizer, variants, values));
  if (!found)
    return UnsupportedError(
        "{}: no {} that GGUF files name splits text as this tokenizer does ({} probe texts)", place,
        spm ? "rule for spaces" : "pre-tokenizer", NumProbeTexts());
  LS_RETURN_IF_ERROR(AddSpecialTokens(tokenizer, place, values));
  LS_TRY(const TextModel back, ReadBack(values));
  if (!back.tokenizer)
    return UnsupportedError("{}: the written tokenizer cannot be read: {}", place,
                            back.notes.empty() ? "" : back.notes.front());
  LS_TRY(const std::string difference, FirstDifferentProbe(tokenizer, *back.tokenizer, {}));
  if (!difference.empty())
    return UnsupportedError("{}: a GGUF's tokenizer would read {} otherwise than the model's own",
                            place, difference);
  return {};
}

}  // namespace

Status AddTokenizerKeys(const Model& model, GgufValues& values, std::vector<std::string>& notes) {
  if (model.checkpoint.kind == Checkpoint::Kind::kGguf) {
    for (const auto& [key, value] : model.checkpoint.gguf.values())
      if (key.starts_with("tokenizer.")) values.Copy(key, value);
    return {};
  }
  LS_TRY(const TextModel text, LoadTextModel(model.checkpoint));
  if (text.chat_template) values.SetString("tokenizer.chat_template", *text.chat_template);
  if (text.tokenizer) return AddVocabulary(model, text, values);
  values.SetString("tokenizer.ggml.model", "none");
  notes.push_back("the model has no tokenizer: the file takes and gives token ids only");
  return {};
}

}  // namespace lockstep

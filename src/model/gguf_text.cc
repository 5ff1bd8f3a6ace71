#include "model/gguf_text.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "formats/describe.h"
#include "tokenizer/gguf_tokenizer.h"

namespace lockstep {
namespace {

// Reads one key as one type; a key of another type is an error, an absent one leaves `out` alone.
class Keys {
 public:
  explicit Keys(const Checkpoint& checkpoint)
      : keys_(checkpoint.gguf), place_(checkpoint.path.string()) {}

  template <typename T, typename As>
  Status Take(std::string_view key, As as, std::string_view expected, T& out) const {
    const GgufValue* value = keys_.Find(key);
    if (value == nullptr) return {};
    auto read = ((*value).*as)();
    if (!read) return InputError("{}: the key {}: expected {}", place_, key, expected);
    out = *std::move(read);
    return {};
  }

  // Ids are written as unsigned, with -1 (all ones) for none.
  Status TakeId(std::string_view key, std::optional<int64_t>& out) const {
    LS_RETURN_IF_ERROR(Take(key, &GgufValue::AsInt, "a token id", out));
    if (out && (*out < 0 || *out >= std::numeric_limits<int32_t>::max())) out.reset();
    return {};
  }

 private:
  const GgufMetadata& keys_;
  std::string place_;
};

// Each *_token_id as the text of its token, for templates.
Status TakeSpecialTokens(const Checkpoint& checkpoint, const GgufVocabulary& vocabulary,
                         Json& out) {
  static constexpr std::pair<const char*, const char*> kIds[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"sep_token", "tokenizer.ggml.seperator_token_id"},  // llama.cpp's spelling
      {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"cls_token", "tokenizer.ggml.cls_token_id"},
      {"mask_token", "tokenizer.ggml.mask_token_id"},
  };
  const Keys keys(checkpoint);
  for (const auto& [name, key] : kIds) {
    std::optional<int64_t> id;
    LS_RETURN_IF_ERROR(keys.TakeId(key, id));
    if (id && static_cast<size_t>(*id) < vocabulary.tokens.size())
      out[name] = std::string(vocabulary.tokens[static_cast<size_t>(*id)]);
  }
  return {};
}

}  // namespace

Result<GgufVocabulary> ReadGgufVocabulary(const Checkpoint& checkpoint) {
  const Keys keys(checkpoint);
  GgufVocabulary out;
  std::vector<double> scores;
  std::vector<int64_t> types;
  LS_RETURN_IF_ERROR(keys.Take("tokenizer.ggml.model", &GgufValue::AsString, "a text", out.model));
  LS_RETURN_IF_ERROR(keys.Take("tokenizer.ggml.pre", &GgufValue::AsString, "a text", out.pre));
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.ggml.tokens", &GgufValue::AsStrings, "a list of texts", out.tokens));
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.ggml.merges", &GgufValue::AsStrings, "a list of texts", out.merges));
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.ggml.scores", &GgufValue::AsDoubles, "a list of numbers", scores));
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.ggml.token_type", &GgufValue::AsInts, "a list of numbers", types));
  LS_RETURN_IF_ERROR(keys.TakeId("tokenizer.ggml.bos_token_id", out.bos));
  LS_RETURN_IF_ERROR(keys.TakeId("tokenizer.ggml.eos_token_id", out.eos));
  LS_RETURN_IF_ERROR(keys.TakeId("tokenizer.ggml.unknown_token_id", out.unk));
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.ggml.add_bos_token", &GgufValue::AsBool, "true or false", out.add_bos));
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.ggml.add_eos_token", &GgufValue::AsBool, "true or false", out.add_eos));
  LS_RETURN_IF_ERROR(keys.Take("tokenizer.ggml.add_space_prefix", &GgufValue::AsBool,
                               "true or false", out.add_space_prefix));
  for (const auto& [list, size] :
       {std::pair{"scores", scores.size()}, std::pair{"token_type", types.size()}})
    if (size != 0 && size != out.tokens.size())
      return InputError("{}: tokenizer.ggml.{} has {} entries for {} tokens",
                        checkpoint.path.string(), list, size, out.tokens.size());
  out.scores.assign(scores.begin(), scores.end());
  out.token_types.assign(types.begin(), types.end());
  return out;
}

Result<TextModel> LoadGgufTextModel(const Checkpoint& checkpoint) {
  TextModel out;
  std::string chat_template;
  const Keys keys(checkpoint);
  LS_RETURN_IF_ERROR(
      keys.Take("tokenizer.chat_template", &GgufValue::AsString, "a text", chat_template));
  if (!chat_template.empty()) out.chat_template = std::move(chat_template);
  if (checkpoint.gguf.Find("tokenizer.ggml.tokens") == nullptr) return out;
  LS_TRY(const GgufVocabulary vocabulary, ReadGgufVocabulary(checkpoint));
  LS_RETURN_IF_ERROR(TakeSpecialTokens(checkpoint, vocabulary, out.special_tokens));
  auto tokenizer = LoadGgufTokenizer(vocabulary, checkpoint.path.string());
  if (!tokenizer) {
    // A model without text still runs on ids.
    out.notes.push_back(std::move(tokenizer).error().message);
    return out;
  }
  out.tokenizer = *std::move(tokenizer);
  out.tokenizer_source = fmt::format("tokenizer.ggml.* ({}{}{})", vocabulary.model,
                                     vocabulary.pre.empty() ? "" : ", ", vocabulary.pre);
  return out;
}

}  // namespace lockstep

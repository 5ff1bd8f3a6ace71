#include "tokenizer/gpt2_files.h"

#include "base/utf8.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/vocabulary_json.h"

namespace lockstep {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

Result<Tokenizer> Read(const JsonField& root, std::string_view vocab_bpe) {
  TokenizerParts parts;
  LS_TRY(Vocabulary vocabulary, ReadVocabularyObject(root));
  LS_TRY(const Bpe::Merges merges, ParseMergeLines(vocab_bpe));
  const int32_t end_of_text = vocabulary.Find(kEndOfText);
  LS_TRY(Bpe bpe, Bpe::Make(std::move(vocabulary), merges, {.raw_bytes = true}));
  parts.model = std::move(bpe);
  ByteLevelSplit split{.add_prefix_space = false, .map_bytes = false};
  LS_TRY(split.pattern, Regex::Compile(kGpt2Pattern));
  parts.pre_tokenizers.emplace_back(std::move(split));
  parts.decoders.push_back(ByteLevelDecoder{});
  if (end_of_text >= 0) {
    parts.added_tokens.push_back({.id = end_of_text,
                                  .content = std::string(kEndOfText),
                                  .normalized = false,
                                  .special = true});
  }
  return Tokenizer::Make(std::move(parts));
}

}  // namespace

Result<Bpe::Merges> ParseMergeLines(std::string_view text) {
  if (const auto fault = FindUtf8Fault(text))
    return InputError("the merges are not UTF-8 at byte {}", fault->valid_up_to);
  Bpe::Merges merges;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      return InputError(
          "line {} of the merges is \"{}\", expected two tokens with one space between", number,
          line.substr(0, 60));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

Result<Tokenizer> LoadGpt2Tokenizer(std::string_view encoder_json, std::string_view vocab_bpe,
                                    std::string_view place) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto error =
      parser.parse(encoder_json.data(), encoder_json.size(), /*realloc_if_needed=*/true).get(root);
  if (error != simdjson::SUCCESS) {
    return InputError("{}: the vocabulary is not a readable JSON file of {} bytes: {}", place,
                      encoder_json.size(), simdjson::error_message(error));
  }
  auto tokenizer = Read(JsonField(root, ""), vocab_bpe);
  if (!tokenizer) return tl::unexpected(std::move(tokenizer).error().In(place));
  return tokenizer;
}

}  // namespace lockstep

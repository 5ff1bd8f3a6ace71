#include "tokenizer/tokenizer_json.h"

#include <algorithm>

#include "tokenizer/json_fields.h"
#include "tokenizer/pipeline_json.h"
#include "tokenizer/vocabulary_json.h"

namespace lockstep {
namespace {

using simdjson::dom::element;

Result<Vocabulary> ReadVocabulary(const JsonField& model) {
  LS_TRY(const JsonField field, model.Get("vocab"));
  return ReadVocabularyObject(field);
}

// Pairs ["a", "b"], or strings "a b" in older files.
Result<Bpe::Merges> ReadMerges(const JsonField& model) {
  LS_TRY(const JsonField field, model.Get("merges"));
  LS_TRY(const simdjson::dom::array list, field.Array());
  Bpe::Merges merges;
  for (const element merge : list) {
    std::string_view left, right, line;
    simdjson::dom::array pair;
    bool good = false;
    if (merge.get(pair) == simdjson::SUCCESS) {
      good = pair.size() == 2 && pair.at(0).get(left) == simdjson::SUCCESS &&
             pair.at(1).get(right) == simdjson::SUCCESS;
    } else if (merge.get(line) == simdjson::SUCCESS) {
      const size_t space = line.find(' ');
      good = space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos;
      if (good) {
        left = line.substr(0, space);
        right = line.substr(space + 1);
      }
    }
    if (!good) {
      return InputError("{}[{}] is neither a pair of tokens nor a string \"left right\"",
                        field.path(), merges.size());
    }
    merges.emplace_back(left, right);
  }
  return merges;
}

Result<TokenModel> ReadBpe(const JsonField& field, std::vector<PreTokenizer>& pre_tokenizers) {
  BpeOptions options;
  if (const auto dropout = field.Find("dropout")) {
    LS_TRY(const double probability, dropout->Number());
    if (probability != 0) {
      return UnsupportedError("{} is {}, expected null: dropout makes the tokens random",
                              dropout->path(), probability);
    }
  }
  if (const auto unk = field.Find("unk_token")) {
    LS_TRY(const std::string_view token, unk->String());
    options.unk_token = token;
  }
  LS_TRY(options.continuing_subword_prefix, field.String("continuing_subword_prefix", ""));
  LS_TRY(options.end_of_word_suffix, field.String("end_of_word_suffix", ""));
  LS_TRY(options.fuse_unk, field.Bool("fuse_unk", false));
  LS_TRY(options.byte_fallback, field.Bool("byte_fallback", false));
  LS_TRY(options.ignore_merges, field.Bool("ignore_merges", false));
  LS_TRY(Vocabulary vocabulary, ReadVocabulary(field));
  // When the last step maps bytes to the byte alphabet, the model may as well take the bytes.
  if (!pre_tokenizers.empty() && Bpe::CanTakeRawBytes(vocabulary, options)) {
    if (auto* byte_level = std::get_if<ByteLevelSplit>(&pre_tokenizers.back())) {
      byte_level->map_bytes = false;
      options.raw_bytes = true;
    }
  }
  LS_TRY(const Bpe::Merges merges, ReadMerges(field));
  LS_TRY(Bpe bpe, Bpe::Make(std::move(vocabulary), merges, std::move(options)));
  return TokenModel(std::move(bpe));
}

Result<TokenModel> ReadWordPiece(const JsonField& field) {
  WordPiece::Options options;
  LS_TRY(options.unk_token, field.String("unk_token", "[UNK]"));
  LS_TRY(options.continuing_subword_prefix, field.String("continuing_subword_prefix", "##"));
  LS_TRY(options.max_input_chars_per_word, field.Count("max_input_chars_per_word", 100));
  LS_TRY(Vocabulary vocabulary, ReadVocabulary(field));
  return TokenModel(WordPiece(std::move(vocabulary), std::move(options)));
}

Result<TokenModel> ReadWordLevel(const JsonField& field) {
  LS_TRY(const std::string_view unk_token, field.String("unk_token"));
  LS_TRY(Vocabulary vocabulary, ReadVocabulary(field));
  return TokenModel(WordLevel(std::move(vocabulary), std::string(unk_token)));
}

Result<TokenModel> ReadUnigram(const JsonField& field) {
  LS_TRY(const JsonField list, field.Get("vocab"));
  LS_TRY(const simdjson::dom::array entries, list.Array());
  Vocabulary vocabulary;
  std::vector<double> scores;
  size_t count = 0;
  for ([[maybe_unused]] const element entry : entries) ++count;
  vocabulary.Reserve(count, 0);
  for (const element entry : entries) {
    simdjson::dom::array pair;
    std::string_view text;
    double score = 0;
    if (entry.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get(text) != simdjson::SUCCESS || pair.at(1).get(score) != simdjson::SUCCESS) {
      return InputError("{}[{}] is not a pair of a token and its score", list.path(),
                        scores.size());
    }
    LS_RETURN_IF_ERROR(vocabulary.Add(text, static_cast<int64_t>(scores.size()), count));
    scores.push_back(score);
  }
  std::optional<int64_t> unk_id;
  if (const auto unk = field.Find("unk_id")) {
    LS_TRY(unk_id, unk->Integer());
  }
  LS_TRY(const bool byte_fallback, field.Bool("byte_fallback", false));
  LS_TRY(Unigram model,
         Unigram::Make(std::move(vocabulary), std::move(scores), unk_id, byte_fallback));
  return TokenModel(std::move(model));
}

Result<TokenModel> ReadModel(const JsonField& field, std::vector<PreTokenizer>& pre_tokenizers) {
  // Files older than the "type" field: told apart by what else they have, as `tokenizers` does.
  LS_TRY(const std::string type,
         field.String("type", field.Find("merges")                     ? "BPE"
                              : field.Find("unk_id")                   ? "Unigram"
                              : field.Find("max_input_chars_per_word") ? "WordPiece"
                                                                       : ""));
  if (type == "BPE") return ReadBpe(field, pre_tokenizers);
  if (type == "WordPiece") return ReadWordPiece(field);
  if (type == "WordLevel") return ReadWordLevel(field);
  if (type == "Unigram") return ReadUnigram(field);
  return UnsupportedError(
      "{} is \"{}\", which is not a known model (known: BPE, WordPiece, WordLevel, Unigram)",
      field.PathOf("type"), type);
}

// `tokenizers` ignores the declared ids: a token of the vocabulary keeps its id, the others count
// on from the end. A file that declares something else gets a note.
Status ReadAddedTokens(const JsonField& field, TokenizerParts& parts) {
  LS_TRY(const simdjson::dom::array list, field.Array());
  const Vocabulary& vocabulary = VocabularyOf(parts.model);
  auto next_id = static_cast<int64_t>(vocabulary.size());
  std::unordered_map<std::string_view, int32_t> seen;
  size_t index = 0;
  for (const element entry : list) {
    const JsonField token_field(entry, fmt::format("{}[{}]", field.path(), index++));
    AddedToken token;
    LS_TRY(const std::string_view content, token_field.String("content"));
    LS_TRY(const int64_t declared, token_field.Integer("id"));
    LS_TRY(token.single_word, token_field.Bool("single_word", false));
    LS_TRY(token.lstrip, token_field.Bool("lstrip", false));
    LS_TRY(token.rstrip, token_field.Bool("rstrip", false));
    LS_TRY(token.special, token_field.Bool("special", false));
    LS_TRY(token.normalized, token_field.Bool("normalized", !token.special));
    if (declared < 0 || declared > INT32_MAX) {
      return InputError("{}.id is {}, expected an id of the vocabulary", token_field.path(),
                        declared);
    }
    if (content.empty()) continue;
    token.content = content;
    const auto known = seen.find(content);
    token.id = known != seen.end() ? known->second : vocabulary.Find(content);
    if (token.id < 0) token.id = static_cast<int32_t>(next_id++);
    seen[content] = token.id;
    if (token.id != declared && parts.notes.size() < 16) {
      parts.notes.push_back(fmt::format(
          "the added token \"{}\" declares the id {} but has the id {}, because `tokenizers` "
          "numbers added tokens on from the end of the vocabulary",
          content.substr(0, 60), declared, token.id));
    }
    parts.added_tokens.push_back(std::move(token));
  }
  return {};
}

Result<Tokenizer> Read(const JsonField& root) {
  if (!root.IsObject()) return root.Wrong("an object with a \"model\"");
  TokenizerParts parts;
  if (const auto part = root.Find("normalizer")) {
    LS_TRY(parts.normalizers, ReadNormalizers(*part));
  }
  if (const auto part = root.Find("pre_tokenizer")) {
    LS_TRY(parts.pre_tokenizers, ReadPreTokenizers(*part));
  }
  LS_TRY(const JsonField model, root.Get("model"));
  LS_TRY(parts.model, ReadModel(model, parts.pre_tokenizers));
  if (const auto part = root.Find("post_processor")) {
    LS_TRY(parts.post_processors, ReadPostProcessors(*part));
  }
  if (const auto part = root.Find("decoder")) {
    LS_TRY(parts.decoders, ReadDecoders(*part));
  }
  if (const auto tokens = root.Find("added_tokens"))
    LS_RETURN_IF_ERROR(ReadAddedTokens(*tokens, parts));
  return Tokenizer::Make(std::move(parts));
}

}  // namespace

Result<Tokenizer> LoadTokenizerJson(std::string_view bytes, std::string_view place) {
  simdjson::dom::parser parser;
  element root;
  const auto error = parser.parse(bytes.data(), bytes.size(), /*realloc_if_needed=*/true).get(root);
  if (error != simdjson::SUCCESS) {
    return InputError("{}: not a readable JSON file of {} bytes: {}", place, bytes.size(),
                      simdjson::error_message(error));
  }
  auto tokenizer = Read(JsonField(root, ""));
  if (!tokenizer) return tl::unexpected(std::move(tokenizer).error().In(place));
  return tokenizer;
}

}  // namespace lockstep

#include "tokenizer/gguf_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

Status CheckSizes(const GgufVocabulary& gguf) {
  const auto check = [&](size_t size, std::string_view key) -> Status {
    if (size == 0 || size == gguf.tokens.size()) return {};
    return InputError("tokenizer.ggml.{} has {} entries, expected {}, one for each token", key,
                      size, gguf.tokens.size());
  };
  if (gguf.tokens.empty()) return InputError("tokenizer.ggml.tokens is missing or empty");
  LS_RETURN_IF_ERROR(check(gguf.token_types.size(), "token_type"));
  LS_RETURN_IF_ERROR(check(gguf.scores.size(), "scores"));
  for (const auto& [id, key] : {std::pair(gguf.bos, "bos_token_id"),
                                {gguf.eos, "eos_token_id"},
                                {gguf.unk, "unknown_token_id"}}) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= gguf.tokens.size())) {
      return InputError("tokenizer.ggml.{} is {}, expected an id below the {} tokens", key, *id,
                        gguf.tokens.size());
    }
  }
  return {};
}

// Files pad their vocabulary with tokens of the same text, which are never wanted twice: the first
// keeps the text, a later one gets none (and decodes to nothing).
Result<Vocabulary> MakeVocabulary(const GgufVocabulary& gguf, std::vector<std::string>& notes) {
  Vocabulary vocabulary;
  size_t bytes = 0;
  for (const std::string_view token : gguf.tokens) bytes += token.size();
  vocabulary.Reserve(gguf.tokens.size(), bytes);
  size_t repeated = 0;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const std::string_view token = gguf.tokens[id];
    if (const auto fault = FindUtf8Fault(token)) {
      return InputError("tokenizer.ggml.tokens[{}] is not UTF-8 at its byte {}", id,
                        fault->valid_up_to);
    }
    if (vocabulary.Find(token) >= 0) {
      if (repeated++ == 0) {
        notes.push_back(fmt::format(
            "tokenizer.ggml.tokens[{}] repeats the text \"{}\" of an earlier token; encoding uses "
            "the earlier one",
            id, token.substr(0, 60)));
      }
      continue;
    }
    LS_RETURN_IF_ERROR(vocabulary.Add(token, static_cast<int64_t>(id), gguf.tokens.size()));
  }
  return vocabulary;
}

// Control and user-defined tokens are cut out of the raw text.
std::vector<AddedToken> MakeAddedTokens(const GgufVocabulary& gguf) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < gguf.token_types.size(); ++id) {
    const int32_t type = gguf.token_types[id];
    if ((type != kGgufControl && type != kGgufUserDefined) || gguf.tokens[id].empty()) continue;
    added.push_back({.id = static_cast<int32_t>(id),
                     .content = std::string(gguf.tokens[id]),
                     .normalized = false,
                     .special = type == kGgufControl});
  }
  return added;
}

Result<Bpe::Merges> MakeMerges(const GgufVocabulary& gguf) {
  if (gguf.merges.empty())
    return InputError("tokenizer.ggml.merges is missing, and the model \"{}\" needs it",
                      gguf.model);
  Bpe::Merges merges;
  for (const std::string_view merge : gguf.merges) {
    const size_t space = merge.size() > 1 ? merge.find(' ', 1) : std::string_view::npos;
    if (space == std::string_view::npos) {
      return InputError(
          "tokenizer.ggml.merges[{}] is \"{}\", expected two tokens with a space between",
          merges.size(), FindUtf8Fault(merge) ? "not UTF-8" : merge.substr(0, 60));
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return merges;
}

Status AddBosAndEos(const GgufVocabulary& gguf, bool default_bos, TokenizerParts& parts) {
  TemplatePost post;
  for (const auto& [wanted, id, key, side] :
       {std::tuple(gguf.add_bos.value_or(default_bos && gguf.bos), gguf.bos, "bos", &post.before),
        {gguf.add_eos.value_or(false), gguf.eos, "eos", &post.after}}) {
    if (!wanted) continue;
    if (!id)
      return InputError(
          "tokenizer.ggml.add_{0}_token is set but tokenizer.ggml.{0}_token_id is missing", key);
    side->push_back(static_cast<int32_t>(*id));
  }
  parts.post_processors.push_back(std::move(post));
  return {};
}

// What SentencePiece-like vocabularies share: spaces as U+2581, bytes as "<0x41>".
void UseSpaceMarks(bool add_space_prefix, TokenizerParts& parts) {
  if (add_space_prefix) parts.normalizers.push_back(PrependNormalizer{std::string(kSpaceMark)});
  parts.normalizers.push_back(ReplaceNormalizer{Regex::Literal(" "), std::string(kSpaceMark)});
  parts.decoders = {ReplaceDecoder{Regex::Literal(kSpaceMark), " "}, ByteFallbackDecoder{},
                    FuseDecoder{}};
  if (add_space_prefix) parts.decoders.push_back(StripDecoder{.content = " ", .start = 1});
}

Result<TokenizerParts> ReadSpm(const GgufVocabulary& gguf) {
  TokenizerParts parts;
  if (gguf.scores.empty())
    return InputError("tokenizer.ggml.scores is missing, and the model \"llama\" needs it");
  LS_TRY(Vocabulary vocabulary, MakeVocabulary(gguf, parts.notes));
  parts.model = Spm::Make(std::move(vocabulary), gguf.scores,
                          gguf.unk ? static_cast<int32_t>(*gguf.unk) : -1);
  UseSpaceMarks(gguf.add_space_prefix.value_or(true), parts);
  LS_RETURN_IF_ERROR(AddBosAndEos(gguf, /*default_bos=*/true, parts));
  return parts;
}

// Gemma 4: merges, but on characters with space marks. llama.cpp splits at newlines as well, which
// merges never cross.
Result<TokenizerParts> ReadMarkedBpe(const GgufVocabulary& gguf) {
  TokenizerParts parts;
  LS_TRY(Vocabulary vocabulary, MakeVocabulary(gguf, parts.notes));
  LS_TRY(const Bpe::Merges merges, MakeMerges(gguf));
  BpeOptions options{.fuse_unk = true, .byte_fallback = true};
  if (gguf.unk) options.unk_token = std::string(gguf.tokens[static_cast<size_t>(*gguf.unk)]);
  LS_TRY(Bpe bpe, Bpe::Make(std::move(vocabulary), merges, std::move(options)));
  parts.model = std::move(bpe);
  UseSpaceMarks(gguf.add_space_prefix.value_or(false), parts);
  LS_RETURN_IF_ERROR(AddBosAndEos(gguf, /*default_bos=*/true, parts));
  return parts;
}

Result<TokenizerParts> ReadByteLevelBpe(const GgufVocabulary& gguf) {
  const std::string_view pre = gguf.pre.empty() ? "default" : std::string_view(gguf.pre);
  const auto rows = GgufPreTokenizers();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const GgufPreTokenizer& r) { return r.name == pre; });
  if (row == rows.end()) {
    std::string known;
    for (const GgufPreTokenizer& r : rows) known.append(known.empty() ? "" : ", ").append(r.name);
    return UnsupportedError(
        "tokenizer.ggml.pre is \"{}\", which is not a known pre-tokenizer (known: {})", pre, known);
  }
  TokenizerParts parts;
  if (row->nfc) parts.normalizers.push_back(NormalForm{.compose = true});
  for (const std::string_view source : row->patterns) {
    PatternSplit split;
    LS_TRY(split.pattern, Regex::Compile(source));
    parts.pre_tokenizers.emplace_back(std::move(split));
  }
  LS_TRY(Vocabulary vocabulary, MakeVocabulary(gguf, parts.notes));
  LS_TRY(const Bpe::Merges merges, MakeMerges(gguf));
  LS_TRY(Bpe bpe, Bpe::Make(std::move(vocabulary), merges,
                            {.ignore_merges = row->ignore_merges, .raw_bytes = true}));
  parts.model = std::move(bpe);
  parts.decoders = {ByteLevelDecoder{}};
  LS_RETURN_IF_ERROR(AddBosAndEos(gguf, row->add_bos, parts));
  return parts;
}

Result<TokenizerParts> Read(const GgufVocabulary& gguf) {
  LS_RETURN_IF_ERROR(CheckSizes(gguf));
  if (gguf.model == "llama") return ReadSpm(gguf);
  if (gguf.model == "gemma4" || (gguf.model == "gpt2" && gguf.pre == "gemma4"))
    return ReadMarkedBpe(gguf);
  if (gguf.model == "gpt2") return ReadByteLevelBpe(gguf);
  return UnsupportedError(
      "tokenizer.ggml.model is \"{}\", which is not a known tokenizer (known: gpt2, llama, gemma4)",
      gguf.model);
}

}  // namespace

Result<Tokenizer> LoadGgufTokenizer(const GgufVocabulary& vocabulary, std::string_view place) {
  auto parts = Read(vocabulary);
  if (!parts) return tl::unexpected(std::move(parts).error().In(place));
  parts->added_tokens = MakeAddedTokens(vocabulary);
  auto tokenizer = Tokenizer::Make(*std::move(parts));
  if (!tokenizer) return tl::unexpected(std::move(tokenizer).error().In(place));
  return tokenizer;
}

}  // namespace lockstep

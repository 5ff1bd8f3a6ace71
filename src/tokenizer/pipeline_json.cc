#include "tokenizer/pipeline_json.h"

#include <algorithm>

#include "base/utf8.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 32;      // of Sequences in Sequences
constexpr size_t kMaxSteps = 256;  // in one pipeline

// One row for each type: how to read it into a list of steps.
template <typename Step>
struct Reader {
  std::string_view type;
  Status (*read)(const JsonField&, std::vector<Step>&);
};

template <typename Step, size_t n>
Status ReadPart(const JsonField& part, std::string_view kind, std::string_view sequence_key,
                const Reader<Step> (&readers)[n], int depth, std::vector<Step>& steps) {
  if (depth > kMaxDepth)
    return InputError("{} nests more than {} Sequences", part.path(), kMaxDepth);
  if (steps.size() > kMaxSteps) return InputError("{} has more than {} steps", kind, kMaxSteps);
  LS_TRY(const std::string_view type, part.String("type"));
  if (type == "Sequence") {
    LS_TRY(const JsonField list, part.Get(sequence_key));
    LS_TRY(const simdjson::dom::array array, list.Array());
    size_t index = 0;
    for (const simdjson::dom::element child : array) {
      const JsonField field(child, fmt::format("{}[{}]", list.path(), index++));
      LS_RETURN_IF_ERROR(ReadPart(field, kind, sequence_key, readers, depth + 1, steps));
    }
    return {};
  }
  std::string known = "Sequence";
  for (const Reader<Step>& reader : readers) {
    if (reader.type == type) return reader.read(part, steps);
    known.append(", ").append(reader.type);
  }
  return UnsupportedError("{} has the type \"{}\", which is not a known {} (known: {})",
                          part.path(), type, kind, known);
}

// {"String": ".."} or {"Regex": ".."}.
Result<Regex> ReadPattern(const JsonField& part) {
  LS_TRY(const JsonField pattern, part.Get("pattern"));
  if (const auto text = pattern.Find("String")) {
    LS_TRY(const std::string_view literal, text->String());
    return Regex::Literal(literal);
  }
  const auto regex = pattern.Find("Regex");
  if (!regex) return InputError("{} has neither \"String\" nor \"Regex\"", pattern.path());
  LS_TRY(const std::string_view source, regex->String());
  auto compiled = Regex::Compile(source);
  if (!compiled) return tl::unexpected(std::move(compiled).error().In(regex->path()));
  return compiled;
}

Result<SplitBehavior> ReadBehavior(const JsonField& part, std::optional<SplitBehavior> absent) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  if (absent && !part.Find("behavior")) return *absent;
  LS_TRY(const std::string_view name, part.String("behavior"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (known == name) return behavior;
  }
  return InputError(
      "{} is \"{}\", expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
      part.PathOf("behavior"), name);
}

// A string of exactly one character.
Result<std::string> ReadCharacter(const JsonField& part, std::string_view key,
                                  std::string_view absent) {
  LS_TRY(const std::string text, part.String(key, absent));
  if (text.empty() || Utf8Length(text[0]) != text.size()) {
    return InputError("{} is \"{}\", expected one character", part.PathOf(key), text.substr(0, 60));
  }
  return text;
}

// "prepend_scheme", or "add_prefix_space" of older files.
Result<PrependScheme> ReadPrependScheme(const JsonField& part) {
  LS_TRY(const std::string scheme, part.String("prepend_scheme", "always"));
  LS_TRY(const bool prefix, part.Bool("add_prefix_space", true));
  if (!prefix && scheme != "never" && part.Find("prepend_scheme")) {
    return InputError("{}: add_prefix_space is false but prepend_scheme is \"{}\"", part.path(),
                      scheme);
  }
  if (scheme == "never" || !prefix) return PrependScheme::kNever;
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "always") return PrependScheme::kAlways;
  return InputError("{} is \"{}\", expected first, never or always", part.PathOf("prepend_scheme"),
                    scheme);
}

template <typename Step, typename Value>
Status Put(std::vector<Step>& steps, Value value) {
  steps.push_back(std::move(value));
  return {};
}

using Normalizers = std::vector<Normalizer>;
constexpr Reader<Normalizer> kNormalizers[] = {
    {"NFC", [](const JsonField&, Normalizers& s) { return Put(s, NormalForm{.compose = true}); }},
    {"NFD", [](const JsonField&, Normalizers& s) { return Put(s, NormalForm{}); }},
    {"NFKC",
     [](const JsonField&, Normalizers& s) {
       return Put(s, NormalForm{.compatibility = true, .compose = true});
     }},
    {"NFKD",
     [](const JsonField&, Normalizers& s) { return Put(s, NormalForm{.compatibility = true}); }},
    {"Lowercase", [](const JsonField&, Normalizers& s) { return Put(s, LowercaseNormalizer{}); }},
    {"StripAccents",
     [](const JsonField&, Normalizers& s) { return Put(s, StripAccentsNormalizer{}); }},
    {"Nmt", [](const JsonField&, Normalizers& s) { return Put(s, NmtNormalizer{}); }},
    {"ByteLevel", [](const JsonField&, Normalizers& s) { return Put(s, ByteLevelNormalizer{}); }},
    {"Strip",
     [](const JsonField& part, Normalizers& s) -> Status {
       LS_TRY(const bool left, part.Bool("strip_left"));
       LS_TRY(const bool right, part.Bool("strip_right"));
       return Put(s, StripNormalizer{left, right});
     }},
    {"Replace",
     [](const JsonField& part, Normalizers& s) -> Status {
       LS_TRY(Regex pattern, ReadPattern(part));
       LS_TRY(const std::string_view content, part.String("content"));
       return Put(s, ReplaceNormalizer{std::move(pattern), std::string(content)});
     }},
    {"Prepend",
     [](const JsonField& part, Normalizers& s) -> Status {
       LS_TRY(const std::string_view prefix, part.String("prepend"));
       return Put(s, PrependNormalizer{std::string(prefix)});
     }},
    {"BertNormalizer",
     [](const JsonField& part, Normalizers& s) -> Status {
       BertNormalizer bert;
       LS_TRY(bert.clean_text, part.Bool("clean_text"));
       LS_TRY(bert.handle_chinese_chars, part.Bool("handle_chinese_chars"));
       LS_TRY(bert.lowercase, part.Bool("lowercase"));
       LS_TRY(bert.strip_accents, part.Bool("strip_accents", bert.lowercase));
       return Put(s, bert);
     }},
    {"Precompiled",
     [](const JsonField& part, Normalizers& s) -> Status {
       LS_TRY(const std::string_view map, part.String("precompiled_charsmap"));
       LS_TRY(Precompiled precompiled, Precompiled::Make(map));
       return Put(s, std::move(precompiled));
     }},
};

Status PutSetSplit(std::vector<PreTokenizer>& steps, std::string_view set, SplitBehavior behavior) {
  return Put(steps, SetSplit{NamedSet(set), behavior});
}

using PreTokenizers = std::vector<PreTokenizer>;
constexpr Reader<PreTokenizer> kPreTokenizers[] = {
    {"ByteLevel",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       ByteLevelSplit split;
       LS_TRY(split.pattern, Regex::Compile(kGpt2Pattern));
       LS_TRY(split.add_prefix_space, part.Bool("add_prefix_space", true));
       LS_TRY(split.use_regex, part.Bool("use_regex", true));
       return Put(s, std::move(split));
     }},
    {"Split",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       PatternSplit split;
       LS_TRY(split.pattern, ReadPattern(part));
       LS_TRY(split.behavior, ReadBehavior(part, std::nullopt));
       LS_TRY(split.invert, part.Bool("invert", false));
       return Put(s, std::move(split));
     }},
    {"Metaspace",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       MetaspaceSplit split;
       LS_TRY(split.replacement, ReadCharacter(part, "replacement", "\u2581"));
       LS_TRY(split.prepend, ReadPrependScheme(part));
       LS_TRY(split.split, part.Bool("split", true));
       return Put(s, std::move(split));
     }},
    {"Whitespace", [](const JsonField&, PreTokenizers& s) { return Put(s, WhitespaceSplit{}); }},
    {"WhitespaceSplit",
     [](const JsonField&, PreTokenizers& s) {
       return PutSetSplit(s, "rust_whitespace", SplitBehavior::kRemoved);
     }},
    {"Digits",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       LS_TRY(const bool individual, part.Bool("individual_digits", false));
       return PutSetSplit(s, "rust_numeric",
                          individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
     }},
    {"Punctuation",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       LS_TRY(const SplitBehavior behavior, ReadBehavior(part, SplitBehavior::kIsolated));
       return PutSetSplit(s, "rust_punctuation", behavior);
     }},
    {"BertPreTokenizer",
     [](const JsonField&, PreTokenizers& s) -> Status {
       LS_RETURN_IF_ERROR(PutSetSplit(s, "rust_whitespace", SplitBehavior::kRemoved));
       return PutSetSplit(s, "bert_punctuation", SplitBehavior::kIsolated);
     }},
    {"CharDelimiterSplit",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       LS_TRY(const std::string delimiter, ReadCharacter(part, "delimiter", ""));
       size_t i = 0;
       const char32_t c = NextCodePoint(delimiter, i);
       return Put(s, SetSplit{CodePointSet(CodePointRanges::Of(c, c)), SplitBehavior::kRemoved});
     }},
    {"UnicodeScripts", [](const JsonField&, PreTokenizers& s) { return Put(s, ScriptSplit{}); }},
    {"FixedLength",
     [](const JsonField& part, PreTokenizers& s) -> Status {
       LS_TRY(const uint64_t length, part.Count("length", 5));
       if (length == 0) return InputError("{} is 0, expected at least 1", part.PathOf("length"));
       return Put(s, FixedLengthSplit{length});
     }},
};

// ["[SEP]", 102]
Result<int32_t> ReadTokenPair(const JsonField& part, std::string_view key) {
  LS_TRY(const JsonField pair, part.Get(key));
  LS_TRY(const simdjson::dom::array array, pair.Array());
  simdjson::dom::element id;
  if (array.size() != 2 || array.at(1).get(id) != simdjson::SUCCESS)
    return pair.Wrong("a token and its id");
  LS_TRY(const int64_t value, JsonField(id, pair.path() + "[1]").Integer());
  if (value < 0 || value > INT32_MAX)
    return InputError("{} has the id {}, expected an id of the vocabulary", pair.path(), value);
  return static_cast<int32_t>(value);
}

// "single": special tokens around one {"Sequence": {"id": "A"}}.
Status ReadTemplate(const JsonField& part, TemplatePost& post) {
  LS_TRY(const JsonField single, part.Get("single"));
  LS_TRY(const simdjson::dom::array pieces, single.Array());
  const auto specials = part.Find("special_tokens");
  bool seen_text = false;
  size_t index = 0;
  for (const simdjson::dom::element element : pieces) {
    const JsonField piece(element, fmt::format("{}[{}]", single.path(), index++));
    if (const auto sequence = piece.Find("Sequence")) {
      LS_TRY(const std::string_view id, sequence->String("id"));
      if (id != "A" || seen_text) {
        return UnsupportedError("{} puts the sequence \"{}\" where \"A\" is expected once",
                                piece.path(), id);
      }
      seen_text = true;
      continue;
    }
    LS_TRY(const JsonField special, piece.Get("SpecialToken"));
    LS_TRY(const std::string_view name, special.String("id"));
    const auto entry = specials ? specials->Find(name) : std::nullopt;
    if (!entry)
      return InputError("{} names \"{}\", which {} lacks", piece.path(), name,
                        part.PathOf("special_tokens"));
    LS_TRY(const JsonField ids, entry->Get("ids"));
    LS_TRY(const simdjson::dom::array list, ids.Array());
    for (const simdjson::dom::element id : list) {
      LS_TRY(const int64_t value, JsonField(id, ids.path()).Integer());
      if (value < 0 || value > INT32_MAX)
        return InputError("{} has the id {}, expected an id of the vocabulary", ids.path(), value);
      (seen_text ? post.after : post.before).push_back(static_cast<int32_t>(value));
    }
  }
  if (!seen_text)
    return InputError("{} has no {{\"Sequence\": {{\"id\": \"A\"}}}}: the text would be lost",
                      single.path());
  return {};
}

using PostProcessors = std::vector<PostProcessor>;
constexpr Reader<PostProcessor> kPostProcessors[] = {
    {"ByteLevel",
     [](const JsonField& part, PostProcessors& s) -> Status {
       ByteLevelPost post;
       LS_TRY(post.trim_offsets, part.Bool("trim_offsets", true));
       LS_TRY(post.add_prefix_space, part.Bool("add_prefix_space", true));
       return Put(s, post);
     }},
    {"TemplateProcessing",
     [](const JsonField& part, PostProcessors& s) -> Status {
       TemplatePost post;
       LS_RETURN_IF_ERROR(ReadTemplate(part, post));
       return Put(s, std::move(post));
     }},
    {"BertProcessing",
     [](const JsonField& part, PostProcessors& s) -> Status {
       BertPost post;
       LS_TRY(post.sep, ReadTokenPair(part, "sep"));
       LS_TRY(post.cls, ReadTokenPair(part, "cls"));
       return Put(s, post);
     }},
    {"RobertaProcessing",
     [](const JsonField& part, PostProcessors& s) -> Status {
       RobertaPost post;
       LS_TRY(post.sep, ReadTokenPair(part, "sep"));
       LS_TRY(post.cls, ReadTokenPair(part, "cls"));
       LS_TRY(post.trim_offsets, part.Bool("trim_offsets", true));
       LS_TRY(post.add_prefix_space, part.Bool("add_prefix_space", true));
       return Put(s, post);
     }},
};

using Decoders = std::vector<TokenDecoder>;
constexpr Reader<TokenDecoder> kDecoders[] = {
    {"ByteLevel", [](const JsonField&, Decoders& s) { return Put(s, ByteLevelDecoder{}); }},
    {"ByteFallback", [](const JsonField&, Decoders& s) { return Put(s, ByteFallbackDecoder{}); }},
    {"Fuse", [](const JsonField&, Decoders& s) { return Put(s, FuseDecoder{}); }},
    {"Replace",
     [](const JsonField& part, Decoders& s) -> Status {
       LS_TRY(Regex pattern, ReadPattern(part));
       LS_TRY(const std::string_view content, part.String("content"));
       return Put(s, ReplaceDecoder{std::move(pattern), std::string(content)});
     }},
    {"Strip",
     [](const JsonField& part, Decoders& s) -> Status {
       StripDecoder strip;
       LS_TRY(strip.content, ReadCharacter(part, "content", " "));
       LS_TRY(strip.start, part.Count("start", 0));
       LS_TRY(strip.stop, part.Count("stop", 0));
       return Put(s, std::move(strip));
     }},
    {"Metaspace",
     [](const JsonField& part, Decoders& s) -> Status {
       MetaspaceDecoder metaspace;
       LS_TRY(metaspace.replacement, ReadCharacter(part, "replacement", "\u2581"));
       LS_TRY(const PrependScheme scheme, ReadPrependScheme(part));
       metaspace.drop_first = scheme != PrependScheme::kNever;
       return Put(s, std::move(metaspace));
     }},
    {"WordPiece",
     [](const JsonField& part, Decoders& s) -> Status {
       WordPieceDecoder decoder;
       LS_TRY(decoder.prefix, part.String("prefix", "##"));
       LS_TRY(decoder.cleanup, part.Bool("cleanup", true));
       return Put(s, std::move(decoder));
     }},
    {"BPEDecoder",
     [](const JsonField& part, Decoders& s) -> Status {
       BpeDecoder decoder;
       LS_TRY(decoder.suffix, part.String("suffix", "</w>"));
       return Put(s, std::move(decoder));
     }},
    {"CTC",
     [](const JsonField& part, Decoders& s) -> Status {
       CtcDecoder decoder;
       LS_TRY(decoder.pad_token, part.String("pad_token", "<pad>"));
       LS_TRY(decoder.word_delimiter_token, part.String("word_delimiter_token", "|"));
       LS_TRY(decoder.cleanup, part.Bool("cleanup", true));
       return Put(s, std::move(decoder));
     }},
};

template <typename Step, size_t n>
Result<std::vector<Step>> ReadAll(const JsonField& part, std::string_view kind,
                                  std::string_view sequence_key, const Reader<Step> (&readers)[n]) {
  std::vector<Step> steps;
  LS_RETURN_IF_ERROR(ReadPart(part, kind, sequence_key, readers, 0, steps));
  return steps;
}

}  // namespace

Result<std::vector<Normalizer>> ReadNormalizers(const JsonField& part) {
  return ReadAll(part, "normalizer", "normalizers", kNormalizers);
}
Result<std::vector<PreTokenizer>> ReadPreTokenizers(const JsonField& part) {
  return ReadAll(part, "pre-tokenizer", "pretokenizers", kPreTokenizers);
}
Result<std::vector<PostProcessor>> ReadPostProcessors(const JsonField& part) {
  return ReadAll(part, "post-processor", "processors", kPostProcessors);
}
Result<std::vector<TokenDecoder>> ReadDecoders(const JsonField& part) {
  LS_TRY(std::vector<TokenDecoder> decoders, ReadAll(part, "decoder", "decoders", kDecoders));
  // A chain of replacements may not blow a token up: each makes a text longer by at most this
  // factor.
  double growth = 1;
  for (const TokenDecoder& decoder : decoders) {
    const auto* replace = std::get_if<ReplaceDecoder>(&decoder);
    if (replace != nullptr) growth *= 1 + static_cast<double>(replace->content.size());
  }
  if (growth > 1e9) {
    return UnsupportedError("{} chains replacements that could make a token {:.0e} times as long",
                            part.path(), growth);
  }
  if (decoders.empty())
    decoders.push_back(FuseDecoder{});  // an empty Sequence joins without spaces
  return decoders;
}

}  // namespace lockstep

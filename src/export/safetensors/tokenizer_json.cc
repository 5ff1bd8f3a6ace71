#include "export/safetensors/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/quoted.h"
#include "tokenizer/gguf_tokenizer.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

// The vocabulary without what GGUF adds to it: padding, and tokens of the same text.
struct Tokens {
  std::vector<std::pair<std::string_view, int64_t>> listed;  // in the order of ids
  std::unordered_map<std::string_view, int64_t> id_of;
};

int32_t TypeOf(const GgufVocabulary& gguf, size_t id) {
  return id < gguf.token_types.size() ? gguf.token_types[id] : int32_t{kGgufNormal};
}

Tokens ListTokens(const GgufVocabulary& gguf) {
  Tokens tokens;
  tokens.id_of.reserve(gguf.tokens.size());
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (TypeOf(gguf, id) == kGgufUnused) continue;
    if (!tokens.id_of.try_emplace(gguf.tokens[id], static_cast<int64_t>(id)).second) continue;
    tokens.listed.emplace_back(gguf.tokens[id], static_cast<int64_t>(id));
  }
  return tokens;
}

struct Merge {
  std::string_view left, right;
};

// transformers' generate_merges (convert_slow_tokenizer.py): every way to make a token of two
// others; the token with the best score first.
std::vector<Merge> MergesFromScores(const GgufVocabulary& gguf, const Tokens& tokens) {
  struct Scored {
    Merge merge;
    float score;
    size_t left_size, right_size;  // in characters
  };
  const auto characters = [](std::string_view text) {
    return static_cast<size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
  };
  std::vector<Scored> scored;
  for (const auto& [text, id] : tokens.listed) {
    const int32_t type = TypeOf(gguf, static_cast<size_t>(id));
    if (type != kGgufNormal && type != kGgufUserDefined) continue;
    std::vector<std::pair<std::pair<int64_t, int64_t>, Merge>> ways;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<uint8_t>(text[cut]) & 0xc0) == 0x80) continue;
      const auto left = tokens.id_of.find(text.substr(0, cut));
      const auto right = tokens.id_of.find(text.substr(cut));
      if (left == tokens.id_of.end() || right == tokens.id_of.end()) continue;
      ways.push_back({{left->second, right->second}, {left->first, right->first}});
    }
    std::sort(ways.begin(), ways.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [ids, merge] : ways)
      scored.push_back({merge, gguf.scores[static_cast<size_t>(id)], characters(merge.left),
                        characters(merge.right)});
  }
  std::stable_sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) {
    return std::tie(a.score, a.left_size, a.right_size) >
           std::tie(b.score, b.left_size, b.right_size);
  });
  std::vector<Merge> merges;
  for (const Scored& entry : scored) merges.push_back(entry.merge);
  return merges;
}

std::string Text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json AddedTokensOf(const GgufVocabulary& gguf, const Tokens& tokens) {
  Json added = Json::array();
  for (const auto& [text, id] : tokens.listed) {
    const int32_t type = TypeOf(gguf, static_cast<size_t>(id));
    const bool special = type == kGgufControl || type == kGgufUnknown;
    if ((!special && type != kGgufUserDefined) || text.empty()) continue;
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", special}});
  }
  return added;
}

// "<bos> $A <eos>", where the file asks for them.
Json PostProcessorOf(const GgufVocabulary& gguf, bool default_bos) {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](const std::optional<int64_t>& id) {
    const std::string text(gguf.tokens[static_cast<size_t>(*id)]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  if (gguf.add_bos.value_or(default_bos && gguf.bos) && gguf.bos) add(gguf.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (gguf.add_eos.value_or(false) && gguf.eos) add(gguf.eos);
  Json pair = single;
  for (const Json& step : single) {
    Json second = step;
    Json& inner = second.begin().value();
    inner["type_id"] = 1;
    if (second.contains("Sequence")) inner["id"] = "B";
    pair.push_back(second);
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

struct Parts {
  Json normalizer, pre_tokenizer, decoder, post_processor;
  std::vector<Merge> merges;
  std::string options;  // of the model, as the inside of a JSON object
};

Json Replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Parts SpmParts(const GgufVocabulary& gguf, const Tokens& tokens) {
  const bool prefix = gguf.add_space_prefix.value_or(true);
  Parts parts;
  Json normalizers = Json::array(), decoders = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  normalizers.push_back(Replace(" ", kSpaceMark));
  decoders.push_back(Replace(kSpaceMark, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", normalizers}};
  parts.decoder = {{"type", "Sequence"}, {"decoders", decoders}};
  parts.post_processor = PostProcessorOf(gguf, true);
  parts.merges = MergesFromScores(gguf, tokens);
  parts.options = fmt::format(
      "\"unk_token\":{},\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false",
      gguf.unk ? Text(gguf.tokens[static_cast<size_t>(*gguf.unk)]) : "null");
  return parts;
}

Result<Parts> ByteLevelParts(const GgufVocabulary& gguf, std::string_view place) {
  const std::string_view pre = gguf.pre.empty() ? "default" : std::string_view(gguf.pre);
  const auto rows = GgufPreTokenizers();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const GgufPreTokenizer& r) { return r.name == pre; });
  if (row == rows.end())
    return UnsupportedError("{}: tokenizer.ggml.pre is {}, which is not a known pre-tokenizer",
                            place, Quoted(pre));
  Parts parts;
  if (row->nfc) parts.normalizer = {{"type", "NFC"}};
  Json steps = Json::array();
  for (const std::string_view pattern : row->patterns)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  steps.push_back(byte_level);
  parts.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", steps}};
  parts.decoder = byte_level;
  parts.post_processor = PostProcessorOf(gguf, row->add_bos);
  for (const std::string_view merge : gguf.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos)
      return InputError("{}: the merge {} has no space between two tokens", place, Quoted(merge));
    parts.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  parts.options = fmt::format(
      "\"unk_token\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":{}",
      row->ignore_merges);
  return parts;
}

}  // namespace

Result<std::string> TokenizerJsonOf(const GgufVocabulary& gguf, std::string_view place) {
  const Tokens tokens = ListTokens(gguf);
  Parts parts;
  if (gguf.model == "llama" && gguf.scores.size() == gguf.tokens.size()) {
    parts = SpmParts(gguf, tokens);
  } else if (gguf.model == "gpt2" && gguf.pre != "gemma4") {
    LS_TRY(parts, ByteLevelParts(gguf, place));
  } else {
    return UnsupportedError("{}: a tokenizer of the model {} cannot be written as tokenizer.json",
                            place, Quoted(gguf.model));
  }
  // Large lists are written entry by entry: an ordered Json object is slow to fill.
  std::string out = "{\n  \"version\":\"1.0\",\n  \"truncation\":null,\n  \"padding\":null,\n";
  out += "  \"added_tokens\":" + AddedTokensOf(gguf, tokens).dump() + ",\n";
  out += "  \"normalizer\":" + parts.normalizer.dump() + ",\n";
  out += "  \"pre_tokenizer\":" + parts.pre_tokenizer.dump() + ",\n";
  out += "  \"post_processor\":" + parts.post_processor.dump() + ",\n";
  out += "  \"decoder\":" + parts.decoder.dump() + ",\n";
  out += "  \"model\":{\"type\":\"BPE\",\"dropout\":null," + parts.options +
         ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\n    \"vocab\":{";
  bool first = true;
  for (const auto& [text, id] : tokens.listed) {
    out += fmt::format("{}\n{}:{}", first ? "" : ",", Text(text), id);
    first = false;
  }
  out += "},\n    \"merges\":[";
  first = true;
  for (const Merge& merge : parts.merges) {
    out += fmt::format("{}\n[{},{}]", first ? "" : ",", Text(merge.left), Text(merge.right));
    first = false;
  }
  return out + "]}\n}\n";
}

}  // namespace lockstep

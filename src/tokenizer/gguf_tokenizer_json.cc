#include "tokenizer/gguf_tokenizer_json.h"

#include <algorithm>
#include <unordered_map>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/pre_tokenizers.h"

namespace lockstep {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

std::string Quote(std::string_view text) { return Json(text).dump(); }

// Large lists are written as text: a JSON object that keeps its order finds a key by looking at
// all.
class Writer {
 public:
  Writer(const GgufVocabulary& gguf, const GgufPreTokenizer* pre) : gguf_(gguf), pre_(pre) {
    for (size_t id = 0; id < gguf.tokens.size(); ++id)
      if (!gguf.tokens[id].empty()) ids_.emplace(gguf.tokens[id], id);  // the first keeps the text
  }

  std::string Write() const {
    const bool byte_level = pre_ != nullptr;
    std::string out = "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n";
    out += "\"added_tokens\": " + AddedTokens() + ",\n";
    out += "\"normalizer\": " + Normalizer().dump() + ",\n";
    out += "\"pre_tokenizer\": " + (byte_level ? PreTokenizer() : Json(nullptr)).dump() + ",\n";
    out += "\"post_processor\": " + PostProcessor().dump() + ",\n";
    out += "\"decoder\": " + Decoder().dump() + ",\n";
    out += "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ";
    out += !byte_level && gguf_.unk ? Quote(gguf_.tokens[static_cast<size_t>(*gguf_.unk)]) : "null";
    out += fmt::format(
        ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": {}, "
        "\"byte_fallback\": {}, \"ignore_merges\": {},\n",
        !byte_level, !byte_level, byte_level && pre_->ignore_merges);
    out += "\"vocab\": {";
    for (size_t id = 0, written = 0; id < gguf_.tokens.size(); ++id) {
      const auto at = ids_.find(gguf_.tokens[id]);
      if (at == ids_.end() || at->second != id) continue;
      out += fmt::format("{}{}: {}", written++ == 0 ? "\n" : ",\n", Quote(gguf_.tokens[id]), id);
    }
    out += "\n},\n\"merges\": [";
    const auto merges = Merges();
    for (size_t i = 0; i < merges.size(); ++i)
      out += fmt::format("{}[{}, {}]", i == 0 ? "\n" : ",\n", Quote(merges[i].first),
                         Quote(merges[i].second));
    return out + "\n]}\n}\n";
  }

 private:
  using Merge = std::pair<std::string_view, std::string_view>;

  bool AddsSpace() const { return gguf_.add_space_prefix.value_or(gguf_.model == "llama"); }

  std::string AddedTokens() const {
    std::string out = "[";
    for (size_t id = 0; id < gguf_.token_types.size(); ++id) {
      const int32_t type = gguf_.token_types[id];
      if ((type != kGgufControl && type != kGgufUserDefined) || gguf_.tokens[id].empty()) continue;
      const Json token = {{"id", id},
                          {"content", gguf_.tokens[id]},
                          {"single_word", false},
                          {"lstrip", false},
                          {"rstrip", false},
                          {"normalized", false},
                          {"special", type == kGgufControl}};
      out += (out.size() == 1 ? "\n" : ",\n") + token.dump();
    }
    return out + "\n]";
  }

  Json Normalizer() const {
    if (pre_ != nullptr) return pre_->nfc ? Json{{"type", "NFC"}} : Json(nullptr);
    Json steps = Json::array();
    if (AddsSpace()) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
    return {{"type", "Sequence"}, {"normalizers", steps}};
  }

  // The patterns one after the other, then bytes as letters. GPT-2's own pattern is part of the
  // last step, and single digits have a step of their own: readers know those words.
  Json PreTokenizer() const {
    Json steps = Json::array();
    bool gpt2 = false;
    for (const std::string_view pattern : pre_->patterns) {
      gpt2 = pattern == kGpt2Pattern && pattern.data() == pre_->patterns.back().data();
      if (gpt2) break;
      if (pattern == R"(\p{N})")
        steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
      else
        steps.push_back({{"type", "Split"},
                         {"pattern", {{"Regex", pattern}}},
                         {"behavior", "Isolated"},
                         {"invert", false}});
    }
    steps.push_back({{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", gpt2}});
    return {{"type", "Sequence"}, {"pretokenizers", steps}};
  }

  Json PostProcessor() const {
    const bool default_bos = pre_ != nullptr ? pre_->add_bos : true;
    const bool bos = gguf_.add_bos.value_or(default_bos && gguf_.bos) && gguf_.bos;
    const bool eos = gguf_.add_eos.value_or(false) && gguf_.eos;
    if (!bos && !eos) return nullptr;
    Json specials = Json::object();
    const auto token = [&](int64_t id, int type) {
      const std::string text(gguf_.tokens[static_cast<size_t>(id)]);
      specials[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
      return Json{{"SpecialToken", {{"id", text}, {"type_id", type}}}};
    };
    const auto text = [&](const char* id, int type, Json& out) {
      if (bos) out.push_back(token(*gguf_.bos, type));
      out.push_back({{"Sequence", {{"id", id}, {"type_id", type}}}});
      if (eos) out.push_back(token(*gguf_.eos, type));
    };
    Json single = Json::array(), pair = Json::array();
    text("A", 0, single);
    text("A", 0, pair);
    text("B", 1, pair);
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", specials}};
  }

  Json Decoder() const {
    if (pre_ != nullptr)
      return {{"type", "ByteLevel"},
              {"add_prefix_space", true},
              {"trim_offsets", true},
              {"use_regex", true}};
    Json steps = {{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                  {{"type", "ByteFallback"}},
                  {{"type", "Fuse"}}};
    if (AddsSpace())
      steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  std::vector<Merge> Merges() const {
    std::vector<Merge> out;
    if (gguf_.model != "llama") {
      for (const std::string_view merge : gguf_.merges) {
        const size_t space = merge.find(' ', 1);
        out.emplace_back(merge.substr(0, space), merge.substr(space + 1));
      }
      return out;
    }
    // Every cut of every token: of those with one score, which is one token, the order decides only
    // where both overlap.
    struct Cut {
      float score;
      Merge merge;
    };
    std::vector<Cut> cuts;
    for (size_t id = 0; id < gguf_.tokens.size(); ++id) {
      const std::string_view token = gguf_.tokens[id];
      const auto at = ids_.find(token);
      if (at == ids_.end() || at->second != id) continue;
      for (size_t i = 0; i < token.size();) {
        NextCodePoint(token, i);
        if (i < token.size() && ids_.contains(token.substr(0, i)) && ids_.contains(token.substr(i)))
          cuts.push_back({gguf_.scores[id], {token.substr(0, i), token.substr(i)}});
      }
    }
    std::stable_sort(cuts.begin(), cuts.end(),
                     [](const Cut& a, const Cut& b) { return a.score > b.score; });
    out.reserve(cuts.size());
    for (const Cut& cut : cuts) out.push_back(cut.merge);
    return out;
  }

  const GgufVocabulary& gguf_;
  const GgufPreTokenizer* pre_;  // nullptr: spaces are marked, and bytes are tokens
  std::unordered_map<std::string_view, size_t> ids_;
};

}  // namespace

Result<std::string> GgufTokenizerJson(const GgufVocabulary& vocabulary, std::string_view place) {
  // Everything is checked there, texts and names included.
  if (auto tokenizer = LoadGgufTokenizer(vocabulary, place); !tokenizer)
    return tl::unexpected(std::move(tokenizer).error());
  const GgufPreTokenizer* pre = nullptr;
  if (vocabulary.model == "gpt2" && vocabulary.pre != "gemma4") {
    const std::string_view name =
        vocabulary.pre.empty() ? "default" : std::string_view(vocabulary.pre);
    const auto rows = GgufPreTokenizers();
    pre = &*std::find_if(rows.begin(), rows.end(),
                         [&](const GgufPreTokenizer& row) { return row.name == name; });
  }
  return Writer(vocabulary, pre).Write();
}

}  // namespace lockstep

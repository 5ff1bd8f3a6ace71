// genai_config.json and the text files beside the model against the checkpoint's. What the runtime
// makes of each key was measured (docs of onnxruntime-genai 0.18's folder).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "audit/findings.h"
#include "base/mapped_file.h"
#include "base/quoted.h"
#include "spec/fields.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kFile = "genai_config.json";

const Json* At(const Json& json, const std::string& pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) ? &json.at(at) : nullptr;
}

std::optional<Json> ReadJson(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const auto text = ReadTextFile(path);
  if (!text) return std::nullopt;
  auto json = ParseJson(*text, path.string());
  return json ? std::optional(*std::move(json)) : std::nullopt;
}

std::string Short(const Json* json) {
  if (json == nullptr) return "nothing";
  return OneLine(json->dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

std::vector<int64_t> Ids(const Json* json) {
  std::vector<int64_t> ids;
  if (json == nullptr) return ids;
  if (json->is_number_integer()) ids.push_back(json->get<int64_t>());
  if (json->is_array())
    for (const Json& one : *json)
      if (one.is_number_integer()) ids.push_back(one.get<int64_t>());
  std::sort(ids.begin(), ids.end());
  return ids;
}

class Configs {
 public:
  Configs(const Model& reference, const OnnxModel& candidate, const Graph& graph,
          AuditReport& report, Collector& out)
      : reference_(reference),
        candidate_(candidate),
        graph_(graph),
        report_(report),
        out_(out),
        folder_(candidate.folder()) {}

  void Run() {
    if (folder_.empty() || candidate_.path().empty()) return;
    std::error_code error;
    if (fs::is_regular_file(folder_ / kFile, error)) {
      if (const auto json = ReadJson(folder_ / kFile))
        Genai(*json);
      else
        report_.notes.push_back(fmt::format("{} is not JSON that can be read", kFile));
    }
    Tokenizer();
    Template();
  }

 private:
  void Differs(const std::string& pointer, const std::string& what, const Json& expected,
               const Json* found, std::string how_to = {}) {
    RawFinding raw{.kind = FindingKind::kGeneration, .path = fmt::format("{}{}", kFile, pointer)};
    raw.what = what;
    raw.expected = Short(&expected);
    raw.found = Short(found);
    if (how_to.empty()) raw.config.push_back({std::string(kFile), pointer, expected});
    raw.how_to = std::move(how_to);
    out_.Add(std::move(raw));
  }

  void Number(const Json& json, const std::string& pointer, int64_t expected,
              const std::string& what) {
    if (expected <= 0) return;
    const Json* found = At(json, pointer);
    if (found != nullptr && found->is_number() &&
        found->get<double>() == static_cast<double>(expected))
      return;
    Differs(pointer, what, expected, found);
  }

  void Genai(const Json& json) {
    const ModelSpec& spec = reference_.spec;
    // A RoPE that stretches with the length has no last position: a longer context is as right.
    const Json* context = At(json, "/model/context_length");
    const bool longer = context != nullptr && context->is_number() &&
                        context->get<double>() > static_cast<double>(spec.max_position_embeddings);
    if (!(longer && StretchesWithLength(spec)))
      Number(json, "/model/context_length", spec.max_position_embeddings, "another context length");
    Number(json, "/model/vocab_size", spec.embedding.vocab_size, "another vocabulary size");
    for (const LayerSpec& layer : spec.layers)
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
        Number(json, "/model/decoder/head_size", CachedHeadSize().value_or(attention->head_dim),
               "another head size");
        break;
      }
    // generation_config.json decides where it says something, as in transformers.
    std::vector<int64_t> wanted = Ids(Generation("eos_token_id"));
    if (wanted.empty()) wanted = spec.tokens.eos;
    std::sort(wanted.begin(), wanted.end());
    const Json* eos = At(json, "/model/eos_token_id");
    if (!wanted.empty() && wanted != Ids(eos))
      Differs("/model/eos_token_id", "generation ends at other tokens",
              wanted.size() == 1 ? Json(wanted[0]) : Json(wanted), eos);
    const auto token = [&](const char* key, const std::optional<int64_t>& of_spec) {
      const std::string pointer = fmt::format("/model/{}", key);
      const std::vector<int64_t> given = Ids(Generation(key));
      const std::optional<int64_t> id = given.size() == 1 ? std::optional(given[0]) : of_spec;
      const Json* found = At(json, pointer);
      if (id && Ids(found) != std::vector<int64_t>{*id})
        Differs(pointer, "another token", *id, found);
    };
    token("bos_token_id", spec.tokens.bos);
    token("pad_token_id", spec.tokens.pad);
    Search(json);
    Window(json);
  }

  const Json* Generation(const char* key) const {
    const Json& generation = reference_.checkpoint.generation_config;
    return generation.is_object() && generation.contains(key) ? &generation.at(key) : nullptr;
  }

  // Of the caches that the graph asks for: heads may be padded in them.
  std::optional<int64_t> CachedHeadSize() const {
    for (const OnnxValueInfo& input : candidate_.inputs())
      if (input.dims && input.dims->size() == 4 && input.dims->back().value)
        return input.dims->back().value;
    return std::nullopt;
  }

  // What generation_config.json says and transformers does, also when it decodes greedily.
  void Search(const Json& json) {
    const Json& generation = reference_.checkpoint.generation_config;
    if (!generation.is_object()) return;
    constexpr std::string_view kKeys[] = {
        "do_sample",      "temperature",        "top_k",    "top_p", "min_length",
        "length_penalty", "repetition_penalty", "num_beams"};
    for (const std::string_view key : kKeys) {
      const auto wanted = generation.find(std::string(key));
      if (wanted == generation.end() || wanted->is_null()) continue;
      const std::string pointer = fmt::format("/search/{}", key);
      const Json* found = At(json, pointer);
      if (found != nullptr && *found == *wanted) continue;
      if (found != nullptr && found->is_number() && wanted->is_number() &&
          found->get<double>() == wanted->get<double>())
        continue;
      Differs(pointer, fmt::format("the checkpoint's {} is dropped", key), *wanted, found);
    }
    const auto ngram = generation.find("no_repeat_ngram_size");
    if (ngram != generation.end() && ngram->is_number() && ngram->get<double>() > 0)
      Differs("/search/no_repeat_ngram_size", "the checkpoint's no_repeat_ngram_size does not act",
              *ngram, At(json, "/search/no_repeat_ngram_size"),
              "nothing: the runtime reads the key and does not use it");
  }

  // The section names the layers with a short cache; those must be the operators that slide theirs.
  void Window(const Json& json) {
    const Json* section = At(json, "/model/decoder/sliding_window");
    if (section == nullptr || !section->is_object()) return;
    std::vector<int64_t> slides;
    for (size_t i = 0; i < report_.decoder.layers.size(); ++i) {
      const auto& attention = report_.decoder.layers[i].attention;
      if (!attention || graph_.Int(attention->node, "sliding_window_cache", 0) == 0) continue;
      // A window that is to be taken away takes its short cache with it.
      const auto* spec = i < reference_.spec.layers.size()
                             ? std::get_if<AttentionSpec>(&reference_.spec.layers[i].mixer)
                             : nullptr;
      if (spec != nullptr && !spec->sliding_window) continue;
      slides.push_back(static_cast<int64_t>(i));
    }
    const Json* layers = At(*section, "/layers");
    const std::vector<int64_t> named = Ids(layers);
    if (slides.empty()) {
      RawFinding raw{.kind = FindingKind::kGeneration,
                     .path = fmt::format("{}/model/decoder/sliding_window", kFile)};
      raw.what = named.empty()
                     ? "every layer gets a short cache, and no operator of the graph slides one: "
                       "it fails where the sequence outgrows it"
                     : "layers get a short cache that no operator of the graph slides";
      raw.expected = "no such section";
      raw.found = Short(layers);
      raw.config.push_back({std::string(kFile), "/model/decoder/sliding_window", nullptr});
      out_.Add(std::move(raw));
      return;
    }
    if (named != slides)
      Differs("/model/decoder/sliding_window/layers",
              "other layers get a short cache than slide theirs", slides, layers);
    if (const Json* slide = At(*section, "/slide_key_value_cache");
        slide == nullptr || *slide != Json(false))
      Differs("/model/decoder/sliding_window/slide_key_value_cache",
              "the runtime would slide the cache itself", false, slide);
  }

  void Tokenizer() {
    const fs::path ours = reference_.checkpoint.path / "tokenizer.json";
    const fs::path theirs = folder_ / "tokenizer.json";
    std::error_code error;
    if (!fs::is_regular_file(ours, error) || !fs::is_regular_file(theirs, error)) return;
    const auto a = MappedFile::Open(ours), b = MappedFile::Open(theirs);
    if (!a || !b || (*a)->text() == (*b)->text()) return;
    const auto mine = ReadJson(ours), other = ReadJson(theirs);
    std::vector<std::string> parts;
    if (!mine || !other) {
      parts.push_back("the file");
    } else {
      for (const char* part :
           {"added_tokens", "normalizer", "pre_tokenizer", "model", "post_processor", "decoder"}) {
        const std::string pointer = fmt::format("/{}", part);
        const Json *x = At(*mine, pointer), *y = At(*other, pointer);
        const bool same = x == nullptr || y == nullptr
                              ? (x == nullptr || x->is_null()) && (y == nullptr || y->is_null())
                              : Json::diff(*x, *y).empty();
        if (!same) parts.push_back(part);
      }
    }
    if (parts.empty()) return;
    RawFinding raw{.kind = FindingKind::kTokenizer, .path = "tokenizer.json"};
    raw.what = fmt::format("another tokenizer: {} differ", fmt::join(parts, ", "));
    raw.how_to = "copy the checkpoint's tokenizer.json over it";
    out_.Add(std::move(raw));
  }

  static std::optional<std::string> TemplateOf(const fs::path& folder) {
    std::error_code error;
    if (fs::is_regular_file(folder / "chat_template.jinja", error))
      if (auto text = ReadTextFile(folder / "chat_template.jinja")) return *std::move(text);
    const auto config = ReadJson(folder / "tokenizer_config.json");
    const Json* text = config ? At(*config, "/chat_template") : nullptr;
    if (text == nullptr || !text->is_string()) return std::nullopt;
    return text->get<std::string>();
  }

  void Template() {
    const auto ours = TemplateOf(reference_.checkpoint.path);
    std::error_code error;
    if (!ours || !fs::is_regular_file(folder_ / "tokenizer_config.json", error)) return;
    const auto theirs = TemplateOf(folder_);
    if (theirs == ours) return;
    RawFinding raw{.kind = FindingKind::kTokenizer, .path = "chat_template"};
    raw.what = theirs ? "another chat template" : "the chat template is missing";
    raw.how_to = "copy the checkpoint's chat template";
    out_.Add(std::move(raw));
  }

  const Model& reference_;
  const OnnxModel& candidate_;
  const Graph& graph_;
  AuditReport& report_;
  Collector& out_;
  const fs::path folder_;
};

}  // namespace

void CompareConfig(const Model& reference, const OnnxModel& candidate, const Graph& graph,
                   AuditReport& report, Collector& out) {
  Configs(reference, candidate, graph, report, out).Run();
}

}  // namespace lockstep

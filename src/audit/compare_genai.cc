// genai_config.json against the checkpoint and the graph: one table of the settings that choose a
// token, one of the sizes, one of the names by which the runtime finds the graph's inputs and
// outputs. What the runtime makes of each key was measured with onnxruntime-genai 0.18. A key that
// is absent means the runtime's default here, and transformers' default there: both are in the row.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "audit/findings.h"
#include "base/mapped_file.h"
#include "base/quoted.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

constexpr std::string_view kFile = "genai_config.json";

const Json* At(const Json& json, const std::string& pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) ? &json.at(at) : nullptr;
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

// A setting of /search that decides which token comes next.
enum class Form : uint8_t { kFlag, kWhole, kReal };
struct Setting {
  std::string_view key;  // the same in /search and in generation_config.json
  Form form;
  double reference;     // transformers' value where generation_config.json has none
  double runtime;       // and the runtime's where /search has none
  bool unused = false;  // the runtime reads the key and does not act on it
  bool neutral = true;  // `reference` changes nothing
};
constexpr Setting kSettings[] = {
    {"do_sample", Form::kFlag, 0, 0},
    {"temperature", Form::kReal, 1, 1},
    {"top_k", Form::kWhole, 50, 50, false, false},
    {"top_p", Form::kReal, 1, 1},  // absent it is 0, which cuts nothing either
    {"min_length", Form::kWhole, 0, 0},
    {"length_penalty", Form::kReal, 1, 1},
    {"repetition_penalty", Form::kReal, 1, 1},
    {"num_beams", Form::kWhole, 1, 1},
    {"num_return_sequences", Form::kWhole, 1, 1},
    {"no_repeat_ngram_size", Form::kWhole, 0, 0, true},
    {"diversity_penalty", Form::kReal, 0, 0, true},
};
// The rest that /search may have: an unknown key keeps the folder from loading.
constexpr std::string_view kOtherSettings[] = {
    "batch_size", "chunk_size", "early_stopping", "max_length", "past_present_share_buffer",
    "random_seed"};

// Names of the graph's inputs and outputs. A %d stands for the number of a layer.
struct NameKey {
  bool input;
  std::string_view key, otherwise;
  bool pattern;
  std::string_view marks;  // a word that such a name has
};
constexpr NameKey kNames[] = {
    {true, "input_ids", "input_ids", false, "ids"},
    {true, "attention_mask", "attention_mask", false, "mask"},
    {true, "position_ids", "position_ids", false, "position"},
    {true, "past_key_names", "past_key_values.%d.key", true, "key"},
    {true, "past_value_names", "past_key_values.%d.value", true, "value"},
    {true, "past_conv_names", "past.%d.conv", true, "conv"},
    {false, "logits", "logits", false, "logits"},
    {false, "present_key_names", "present.%d.key", true, "key"},
    {false, "present_value_names", "present.%d.value", true, "value"},
    {false, "present_conv_names", "present.%d.conv", true, "conv"},
};

constexpr std::string_view kProviders[] = {"cpu", "CPU"};

bool Matches(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find("%d");
  if (at == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, at), behind = pattern.substr(at + 2);
  return name.size() > before.size() + behind.size() && name.starts_with(before) &&
         name.ends_with(behind) &&
         std::all_of(name.begin() + static_cast<long>(before.size()),
                     name.end() - static_cast<long>(behind.size()),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// "past.12.key" as "past.%d.key"; empty without a number.
std::string PatternOf(std::string_view name) {
  const size_t first = name.find_first_of("0123456789");
  if (first == std::string_view::npos) return {};
  const size_t last = name.find_first_not_of("0123456789", first);
  return fmt::format("{}%d{}", name.substr(0, first),
                     last == std::string_view::npos ? "" : name.substr(last));
}

class Genai {
 public:
  Genai(const Model& reference, const OnnxModel& candidate, const Graph& graph, const Json& config,
        AuditReport& report, Collector& out)
      : reference_(reference),
        spec_(reference.spec),
        candidate_(candidate),
        graph_(graph),
        json_(config),
        report_(report),
        out_(out) {}

  void Run() {
    Sizes();
    Tokens();
    Search();
    Names(true);
    Names(false);
    Window();
    LayerTypes();
    Providers();
  }

 private:
  // Null as `expected`: the key is to go.
  void Differs(const std::string& pointer, const std::string& what, const Json& expected,
               const Json* found, std::string how_to = {}) {
    RawFinding raw{.kind = FindingKind::kGeneration, .path = fmt::format("{}{}", kFile, pointer)};
    raw.what = what;
    raw.expected = expected.is_null() ? "no such key" : Short(&expected);
    raw.found = Short(found);
    if (how_to.empty()) raw.config.push_back({std::string(kFile), pointer, expected});
    raw.how_to = std::move(how_to);
    out_.Add(std::move(raw));
  }

  // `required`: the runtime does without none.
  void Number(const std::string& pointer, int64_t expected, const std::string& what,
              bool required) {
    if (expected <= 0) return;
    const Json* found = At(json_, pointer);
    if (found == nullptr && !required) return;
    if (found != nullptr && found->is_number() &&
        found->get<double>() == static_cast<double>(expected))
      return;
    Differs(pointer, what, expected, found);
  }

  // Of the caches that the graph asks for: heads may be padded in them.
  std::optional<int64_t> CachedSize(size_t axis) const {
    for (const OnnxValueInfo& input : candidate_.inputs())
      if (input.dims && input.dims->size() == 4 && (*input.dims)[axis].value)
        return (*input.dims)[axis].value;
    return std::nullopt;
  }

  std::optional<int64_t> LogitsWidth() const {
    if (report_.decoder.logits == kNoValue) return std::nullopt;
    const OnnxValueInfo* logits = candidate_.Output(graph_.Name(report_.decoder.logits));
    if (logits == nullptr || !logits->dims || logits->dims->empty()) return std::nullopt;
    return logits->dims->back().value;
  }

  void Sizes() {
    // A RoPE that stretches with the length has no last position: a longer context is as right.
    const Json* context = At(json_, "/model/context_length");
    const bool longer = context != nullptr && context->is_number() &&
                        context->get<double>() > static_cast<double>(spec_.max_position_embeddings);
    if (!(longer && StretchesWithLength(spec_)))
      Number("/model/context_length", spec_.max_position_embeddings, "another context length",
             true);
    Number("/model/vocab_size", LogitsWidth().value_or(spec_.embedding.vocab_size),
           "another vocabulary size", true);
    // These of the first layer with attention, and only where all layers have the same.
    std::set<int64_t> heads, key_heads, head_sizes;
    for (const LayerSpec& layer : spec_.layers) {
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
        heads.insert(attention->num_attention_heads);
        key_heads.insert(attention->num_key_value_heads);
        head_sizes.insert(attention->head_dim);
      } else if (const auto* mla = std::get_if<MlaSpec>(&layer.mixer)) {
        heads.insert(mla->num_attention_heads);
      }
    }
    const auto one = [](const std::set<int64_t>& all) {
      return all.size() == 1 ? *all.begin() : 0;
    };
    if (!head_sizes.empty())
      Number("/model/decoder/head_size", CachedSize(3).value_or(*head_sizes.begin()),
             "another head size", true);
    Number("/model/decoder/num_attention_heads", one(heads), "another number of heads", false);
    Number("/model/decoder/num_key_value_heads", CachedSize(1).value_or(one(key_heads)),
           "another number of key and value heads", false);
    Number("/model/decoder/num_hidden_layers", static_cast<int64_t>(spec_.layers.size()),
           "another number of layers", false);
    Number("/model/decoder/hidden_size", spec_.embedding.hidden_size, "another hidden size", false);
  }

  void Tokens() {
    // generation_config.json decides where it says something, as in transformers.
    std::vector<int64_t> wanted = Ids(Generation("eos_token_id"));
    if (wanted.empty()) wanted = spec_.tokens.eos;
    std::sort(wanted.begin(), wanted.end());
    const Json* eos = At(json_, "/model/eos_token_id");
    if (!wanted.empty() && wanted != Ids(eos))
      Differs("/model/eos_token_id", "generation ends at other tokens",
              wanted.size() == 1 ? Json(wanted[0]) : Json(wanted), eos);
    const auto token = [&](const char* key, const std::optional<int64_t>& of_spec) {
      const std::string pointer = fmt::format("/model/{}", key);
      const std::vector<int64_t> given = Ids(Generation(key));
      const std::optional<int64_t> id = given.size() == 1 ? std::optional(given[0]) : of_spec;
      const Json* found = At(json_, pointer);
      const std::vector<int64_t> theirs = Ids(found);
      if (id && theirs != std::vector<int64_t>{*id})
        Differs(pointer, "another token", *id, found);
      else if (!id && found != nullptr &&
               (theirs.size() != 1 || theirs[0] < 0 || theirs[0] >= spec_.embedding.vocab_size))
        Differs(pointer, "a token that the vocabulary does not have", nullptr, found);
    };
    token("bos_token_id", spec_.tokens.bos);
    token("pad_token_id", spec_.tokens.pad);
  }

  // transformers takes settings from config.json only where there is no generation_config.json.
  const Json* Generation(std::string_view key) const {
    const Json& own = reference_.checkpoint.generation_config;
    const Json& from = own.is_object() ? own : reference_.checkpoint.config;
    if (!from.is_object()) return nullptr;
    const auto at = from.find(std::string(key));
    return at == from.end() || at->is_null() ? nullptr : &*at;
  }

  static std::optional<double> AsNumber(const Json* json) {
    if (json == nullptr) return std::nullopt;
    if (json->is_boolean()) return json->get<bool>() ? 1 : 0;
    return json->is_number() ? std::optional(json->get<double>()) : std::nullopt;
  }

  static Json AsJson(Form form, double value) {
    if (form == Form::kFlag) return value != 0;
    if (form == Form::kWhole) return static_cast<int64_t>(value);
    return value;
  }

  // top_p has two ways of saying that it cuts nothing.
  static double Plain(std::string_view key, double value) {
    return key == "top_p" && (value <= 0 || value > 1) ? 1 : value;
  }

  void Search() {
    for (const Setting& setting : kSettings) {
      const std::string pointer = fmt::format("/search/{}", setting.key);
      const Json* given = Generation(setting.key);
      const Json* found = At(json_, pointer);
      if (given != nullptr && !AsNumber(given)) continue;  // no value that /search could have
      const double wanted = AsNumber(given).value_or(setting.reference);
      const auto theirs = found == nullptr ? std::optional(setting.runtime) : AsNumber(found);
      const bool same = theirs && Plain(setting.key, *theirs) == Plain(setting.key, wanted) &&
                        (found == nullptr || found->is_boolean() == (setting.form == Form::kFlag));
      const bool acts_not = setting.unused && given != nullptr && wanted > 0;
      if (same && !acts_not) continue;
      std::string what = fmt::format("the checkpoint's {} is dropped", setting.key);
      if (acts_not)
        what = fmt::format("the checkpoint's {} does not act", setting.key);
      else if (given == nullptr && !setting.neutral)
        what = fmt::format("another {} than transformers' default", setting.key);
      else if (given == nullptr)
        what = fmt::format("{} was added: the checkpoint is run without", setting.key);
      else if (theirs && *theirs != setting.runtime)
        what = fmt::format("another {}", setting.key);
      Differs(pointer, what, given != nullptr ? *given : AsJson(setting.form, setting.reference),
              found, acts_not ? "nothing: the runtime reads the key and does not use it" : "");
    }
    const Json* search = At(json_, "/search");
    if (search == nullptr || !search->is_object()) return;
    for (const auto& [key, value] : search->items()) {
      const bool known =
          std::any_of(std::begin(kSettings), std::end(kSettings),
                      [&, &name = key](const Setting& s) { return s.key == name; }) ||
          std::find(std::begin(kOtherSettings), std::end(kOtherSettings), key) !=
              std::end(kOtherSettings);
      if (!known)
        Differs("/search/" + Escaped(key), "a key that the runtime refuses to load", nullptr,
                &value);
    }
    if (const Json* batch = At(json_, "/search/batch_size");
        batch != nullptr && AsNumber(batch) != 1.0)
      Differs("/search/batch_size", "one prompt gives other tokens so", 1, batch);
    const auto most = AsNumber(At(json_, "/search/max_length"));
    const auto context = AsNumber(At(json_, "/model/context_length"));
    if (most && context && *most > *context)
      Differs("/search/max_length", "longer than the context: the runtime refuses to generate",
              *At(json_, "/model/context_length"), At(json_, "/search/max_length"));
  }

  // As RFC 6901 writes it.
  static std::string Escaped(std::string_view key) {
    std::string out;
    for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return out;
  }

  std::string NameOf(const NameKey& key, const Json** given) const {
    *given =
        At(json_, fmt::format("/model/decoder/{}/{}", key.input ? "inputs" : "outputs", key.key));
    if (*given != nullptr && (*given)->is_string()) return (*given)->get<std::string>();
    return std::string(key.otherwise);
  }

  // Each input of the graph is named by one key; what a key names and the graph lacks, and what the
  // graph has and no key names, belong together.
  void Names(bool inputs) {
    std::set<std::string> unnamed;
    for (const OnnxValueInfo& value : inputs ? candidate_.inputs() : candidate_.outputs())
      unnamed.insert(value.name);
    std::vector<const NameKey*> lost;
    for (const NameKey& key : kNames) {
      if (key.input != inputs) continue;
      const Json* given = nullptr;
      const std::string name = NameOf(key, &given);
      const size_t before = unnamed.size();
      std::erase_if(unnamed, [&](const std::string& n) { return Matches(name, n); });
      if (unnamed.size() == before || (key.pattern && name.find("%d") == std::string::npos))
        lost.push_back(&key);
    }
    for (const NameKey* key : lost) {
      const Json* given = nullptr;
      const std::string name = NameOf(*key, &given);
      std::set<std::string> fit;
      for (const std::string& n : unnamed) {
        if (n.find(key->marks) == std::string::npos) continue;
        if (key->key == "input_ids" && n.find("position") != std::string::npos) continue;
        const std::string pattern = key->pattern ? PatternOf(n) : n;
        if (!pattern.empty()) fit.insert(pattern);
      }
      const int anchor = key->key == "input_ids" ? report_.decoder.tokens
                         : key->key == "logits"  ? report_.decoder.logits
                                                 : kNoValue;
      if (anchor != kNoValue && unnamed.contains(graph_.Name(anchor))) fit = {graph_.Name(anchor)};
      // Naming what the graph has not is harmless where it wants nothing of the kind.
      if (fit.empty()) continue;
      Differs(
          fmt::format("/model/decoder/{}/{}", inputs ? "inputs" : "outputs", key->key),
          fmt::format("the graph has no {} of this name", inputs ? "input" : "output"),
          fit.size() == 1 ? Json(*fit.begin()) : Json(fmt::format("{}", fmt::join(fit, " or "))),
          given,
          fit.size() == 1 ? "" : fmt::format("write the graph's own name of {} there", key->key));
    }
  }

  // The section names the layers with a short cache; those must be the operators that slide theirs.
  void Window() {
    std::vector<int64_t> slides;
    int64_t widest = 0;
    for (size_t i = 0; i < report_.decoder.layers.size(); ++i) {
      const auto& attention = report_.decoder.layers[i].attention;
      if (!attention || graph_.Int(attention->node, "sliding_window_cache", 0) == 0) continue;
      // A window that is to be taken away takes its short cache with it.
      const auto* spec =
          i < spec_.layers.size() ? std::get_if<AttentionSpec>(&spec_.layers[i].mixer) : nullptr;
      if (spec != nullptr && !spec->sliding_window) continue;
      slides.push_back(static_cast<int64_t>(i));
      widest =
          std::max(widest, spec != nullptr ? *spec->sliding_window : attention->window.value_or(0));
    }
    const Json* shares = At(json_, "/search/past_present_share_buffer");
    if (!slides.empty() && (shares == nullptr || *shares != Json(true)))
      Differs("/search/past_present_share_buffer",
              "the operators slide their cache within a buffer that is shared", true, shares);
    const Json* section = At(json_, "/model/decoder/sliding_window");
    if (section == nullptr || !section->is_object()) return;
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
    // A longer one costs memory and changes nothing.
    if (const Json* size = At(*section, "/window_size");
        AsNumber(size).value_or(0) < static_cast<double>(widest))
      Differs("/model/decoder/sliding_window/window_size",
              "the short cache holds less than a window", widest, size);
    if (const Json* slide = At(*section, "/slide_key_value_cache");
        slide == nullptr || *slide != Json(false))
      Differs("/model/decoder/sliding_window/slide_key_value_cache",
              "the runtime would slide the cache itself", false, slide);
    if (const Json* slide = At(*section, "/slide_inputs"); slide != nullptr && *slide == Json(true))
      Differs("/model/decoder/sliding_window/slide_inputs",
              "the runtime would cut prompts into windows", false, slide);
  }

  // Which layers have a cache of keys and values, and which one of a convolution's inputs.
  void LayerTypes() {
    const Json* types = At(json_, "/model/decoder/layer_types");
    if (types == nullptr || !types->is_array()) return;
    Json wanted = Json::array();
    bool same = types->size() == spec_.layers.size();
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const bool conv = std::holds_alternative<ShortConvSpec>(spec_.layers[i].mixer);
      const bool theirs = i < types->size() && (*types)[i] == Json("conv");
      const bool keep = i < types->size() && conv == theirs && (*types)[i].is_string();
      wanted.push_back(keep ? (*types)[i] : Json(conv ? "conv" : "full_attention"));
      same = same && keep;
    }
    if (!same) Differs("/model/decoder/layer_types", "other kinds of layers", wanted, types);
  }

  // They choose kernels and their precision: what each option does is the provider's own matter.
  void Providers() {
    const Json* all = At(json_, "/model/decoder/session_options/provider_options");
    if (all == nullptr || (all->is_array() && all->empty())) return;
    std::vector<std::string> names;
    if (all->is_array())
      for (const Json& one : *all)
        if (one.is_object())
          for (const auto& [name, options] : one.items())
            if (std::find(std::begin(kProviders), std::end(kProviders), name) ==
                    std::end(kProviders) ||
                !options.is_object() || !options.empty())
              names.push_back(OneLine(name, 40));
    if (!all->is_array() || !names.empty())
      report_.notes.push_back(fmt::format(
          "{}: the provider options{}{} were not compared: which kernels run, and in which "
          "precision, is theirs to say",
          kFile, names.empty() ? "" : " of ", fmt::join(names, ", ")));
  }

  const Model& reference_;
  const ModelSpec& spec_;
  const OnnxModel& candidate_;
  const Graph& graph_;
  const Json& json_;
  AuditReport& report_;
  Collector& out_;
};

}  // namespace

std::optional<Json> ReadGenaiConfig(const OnnxModel& candidate, std::vector<std::string>& notes) {
  if (candidate.folder().empty() || candidate.path().empty()) return std::nullopt;
  const auto path = candidate.folder() / kFile;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  if (const auto text = ReadTextFile(path))
    if (auto json = ParseJson(*text, path.string())) return *std::move(json);
  notes.push_back(fmt::format("{} is not JSON that can be read", kFile));
  return std::nullopt;
}

void CompareGenai(const Model& reference, const OnnxModel& candidate, const Graph& graph,
                  const Json& config, AuditReport& report, Collector& out) {
  Genai(reference, candidate, graph, config, report, out).Run();
}

}  // namespace lockstep

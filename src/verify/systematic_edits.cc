#include "verify/systematic_edits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/dtype.h"
#include "spec/field_list.h"
#include "spec/fields.h"
#include "verify/weight_edits.h"

namespace lockstep {
namespace {

// A value to write, and what writing it would mean.
struct Replacement {
  Json value;
  std::string why;
};

// A field that several layers hold with one value; `layers` is empty for a field outside them.
struct Group {
  std::string rest;  // "mixer.rope.theta", or the whole path outside the layers
  Json value;
  std::vector<int64_t> layers;
  std::string Path() const {
    return layers.empty() ? rest : fmt::format("layers[{}].{}", JoinNumbers(layers), rest);
  }
};

std::string_view LastName(std::string_view path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}
std::string_view Parent(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : path.substr(0, dot);
}

// "layers[3].mlp" -> 3 and "mlp".
std::optional<std::pair<int64_t, std::string>> SplitLayer(std::string_view path) {
  constexpr std::string_view kPrefix = "layers[";
  if (!path.starts_with(kPrefix)) return std::nullopt;
  int64_t layer = 0;
  const auto [stop, error] =
      std::from_chars(path.data() + kPrefix.size(), path.data() + path.size(), layer);
  if (error != std::errc{} || stop + 2 >= path.data() + path.size()) return std::nullopt;
  return std::pair{layer, std::string(stop + 2, path.data() + path.size())};
}

template <typename Enum>
void AddNames(std::vector<std::string_view>& out) {
  out.insert(out.end(), NamesOf<Enum>().begin(), NamesOf<Enum>().end());
}
// Of every enum in a spec: which of them a field takes, SetField knows.
std::vector<std::string_view> EnumNames() {
  std::vector<std::string_view> names;
  AddNames<Rounding>(names);
  AddNames<NormKind>(names);
  AddNames<RopeLayout>(names);
  AddNames<QkNormScope>(names);
  AddNames<Activation>(names);
  AddNames<RouterScoring>(names);
  AddNames<Wiring>(names);
  return names;
}

// Facts that decide no number, or whose change needs other weights.
bool IsFixed(std::string_view path) {
  return path == "architecture" || path == "max_position_embeddings" ||
         path.starts_with("tokens.") || path.ends_with("vocab_size") ||
         path.ends_with("hidden_size") || path.ends_with("intermediate_size") ||
         path.ends_with("num_experts") || path == "layers";
}

class Generator {
 public:
  explicit Generator(const ModelSpec& spec) : spec_(spec) {
    for (const WeightSlot& slot : RequiredWeights(spec)) slots_[slot.id] = {slot.rows, slot.cols};
    seen_.insert(Text(spec));
    ReadFields();
  }

  std::vector<Hypothesis> Run() {
    Schedules();
    for (const Group& group : groups_)
      for (const Replacement& replacement : Replacements(group)) Replace(group, replacement);
    Families();
    for (WeightHypothesis& weight : WeightEdits(spec_))
      (weight.single ? singles_ : grouped_)
          .push_back({{.weights = std::move(weight.edits)},
                      weight.single ? Origin::kSingle : Origin::kSystematic,
                      "",
                      std::move(weight.sentence)});
    std::vector<Hypothesis> out = std::move(grouped_);
    out.insert(out.end(), std::make_move_iterator(singles_.begin()),
               std::make_move_iterator(singles_.end()));
    return out;
  }

 private:
  static std::string Text(const ModelSpec& spec) { return ToJson(spec).dump(); }

  void ReadFields() {
    std::map<std::string, std::vector<size_t>> known;  // rest -> groups
    for (const std::string& path : FieldPaths(spec_)) {
      const auto value = GetField(spec_, path);
      if (!value) continue;
      const auto split = SplitLayer(path);
      if (!split) {
        groups_.push_back({path, *value, {}});
        continue;
      }
      const auto& [layer, rest] = *split;
      auto& candidates = known[rest];
      const auto same = std::find_if(candidates.begin(), candidates.end(),
                                     [&](size_t g) { return groups_[g].value == *value; });
      if (same != candidates.end()) {
        groups_[*same].layers.push_back(layer);
      } else {
        candidates.push_back(groups_.size());
        groups_.push_back({rest, *value, {layer}});
      }
    }
  }

  // Keeps the edit when it gives a valid spec that nobody has given yet, from the same weights.
  bool Add(std::vector<FieldEdit> fields, Origin origin, std::string sentence) {
    Edit edit{.spec = std::move(fields)};
    const auto edited = EditedSpec(spec_, edit);
    if (!edited) return false;
    // FirstDifferentLayer's sense of "different" is finer than this needs: tokens do not differ.
    if (*edited == spec_) return false;
    for (const WeightSlot& slot : RequiredWeights(*edited)) {
      const auto found = slots_.find(slot.id);
      if (found == slots_.end() || found->second != std::pair{slot.rows, slot.cols}) return false;
    }
    if (!seen_.insert(Text(*edited)).second) return false;
    (origin == Origin::kSingle ? singles_ : grouped_)
        .push_back({std::move(edit), origin, "", std::move(sentence)});
    return true;
  }

  void Replace(const Group& group, const Replacement& replacement) {
    if (replacement.value == group.value) return;
    const std::string value = replacement.value.dump();
    Add({{group.Path(), value}}, Origin::kSystematic, replacement.why);
    if (group.layers.size() < 2) return;
    for (const int64_t layer : group.layers)
      Add({{fmt::format("layers[{}].{}", layer, group.rest), value}}, Origin::kSingle,
          replacement.why + ", in one layer");
  }

  const AttentionSpec* AttentionOf(const Group& group) const {
    if (group.layers.empty()) return nullptr;
    return std::get_if<AttentionSpec>(&spec_.layers[static_cast<size_t>(group.layers[0])].mixer);
  }

  std::vector<Replacement> Replacements(const Group& group) const {
    std::vector<Replacement> out;
    if (IsFixed(group.rest)) return out;
    if (!group.value.is_null()) out.push_back({nullptr, "an optional fact is left out"});
    for (const Group& other : groups_)
      if (&other != &group && other.rest == group.rest && !group.layers.empty())
        out.push_back({other.value, "other layers' value"});
    if (group.value.is_boolean()) {
      out.push_back({!group.value.get<bool>(), "a flag is flipped"});
    } else if (group.value.is_string()) {
      static const std::vector<std::string_view> kNames = EnumNames();
      for (const std::string_view name : kNames) out.push_back({name, "another of its values"});
    } else if (group.value.is_number()) {
      Numbers(group, out);
    } else if (group.value.is_null()) {
      Presences(group, out);
    } else if (group.rest.ends_with("scaling") && group.value.is_object()) {
      if (group.value.contains("factor") && group.value.value("kind", "") != "linear")
        out.push_back({Json{{"kind", "linear"}, {"factor", group.value["factor"]}},
                       "the factor divides every frequency"});
    } else if (group.value.is_array() && group.rest.ends_with("_factor")) {
      const std::string twin =
          std::string(Parent(group.rest)) +
          (group.rest.ends_with("short_factor") ? ".long_factor" : ".short_factor");
      for (const Group& other : groups_)
        if (other.rest == twin) out.push_back({other.value, "the other length's factors"});
      out.push_back({Json(std::vector<double>(group.value.size(), 1.0)), "no factors"});
    }
    return out;
  }

  void Numbers(const Group& group, std::vector<Replacement>& out) const {
    const std::string_view name = LastName(group.rest);
    const double x = group.value.get<double>();
    if (group.value.is_number_integer()) {
      const auto n = group.value.get<int64_t>();
      for (const int64_t y : {n - 1, n + 1, n * 2, n / 2})
        out.push_back({y, "off by one, or by a factor of two"});
      if (name == "rotary_dim")
        if (const AttentionSpec* a = AttentionOf(group))
          for (const int64_t y : {a->head_dim, a->head_dim / 2, a->head_dim / 4})
            out.push_back({y, "another share of the head turns"});
      return;
    }
    const auto put = [&](double y, std::string why) {
      if (std::isfinite(y)) out.push_back({y, std::move(why)});
    };
    if (name == "value" && group.rest.find("query_scale") != std::string::npos)
      QueryScales(group, put);
    if (group.rest == "embedding.scale.value")
      put(std::sqrt(static_cast<double>(spec_.embedding.hidden_size)), "√hidden_size");
    if (name == "theta")
      for (const double y : {1e4, 1e5, 5e5, 1e6}) put(y, "a usual base of RoPE");
    const bool epsilon = name.ends_with("eps") || name.ends_with("epsilon");
    if (epsilon)
      for (const double y : {1e-3, 1e-5, 1e-6, 1e-8, 1e-12, 1e-20}) put(y, "a usual epsilon");
    put(0, "the number is left out (0)");
    // Only a factor is divided by for multiplied with, forgotten, or applied twice.
    const bool factor = !epsilon && name != "theta";
    if (factor) put(1, "the number is left out (1)");
    if (factor && x != 0) put(1 / x, "the inverse");
    put(ToFloat(ToBFloat16(static_cast<float>(x))), "rounded to bf16");
    put(ToFloat(ToFloat16(static_cast<float>(x))), "rounded to fp16");
    put(std::nearbyint(x * 100) / 100, "rounded to two decimals");
    if (factor && x > 0) put(std::sqrt(x), "the square root");
    if (factor) put(x * x, "applied twice");
  }

  // The scale of q . k that other facts of the model would give.
  template <typename Put>
  void QueryScales(const Group& group, const Put& put) const {
    const LayerSpec& layer = spec_.layers[static_cast<size_t>(group.layers[0])];
    const auto hidden = static_cast<double>(spec_.embedding.hidden_size);
    double head_dim = 0, heads = 1, rotary = 0;
    bool divide = false;
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer)) {
      head_dim = static_cast<double>(a->head_dim);
      heads = static_cast<double>(a->num_attention_heads);
      divide = a->query_scale.divide;
      if (a->rope) rotary = static_cast<double>(a->rope->rotary_dim);
    } else if (const auto* m = std::get_if<MlaSpec>(&layer.mixer)) {
      head_dim = static_cast<double>(m->qk_nope_head_dim + m->qk_rope_head_dim);
      heads = static_cast<double>(m->num_attention_heads);
      divide = m->query_scale.divide;
      put(divide ? std::sqrt(static_cast<double>(m->qk_nope_head_dim))
                 : 1 / std::sqrt(static_cast<double>(m->qk_nope_head_dim)),
          "1 / √qk_nope_head_dim");
    }
    const auto scale = [&](double of, const char* why) {
      if (of > 0) put(divide ? std::sqrt(of) : 1 / std::sqrt(of), why);
    };
    scale(head_dim, "1 / √head_dim");
    scale(hidden / heads, "1 / √(hidden_size / heads)");
    scale(rotary, "1 / √rotary_dim");
    scale(hidden, "1 / √hidden_size");
    scale(head_dim * head_dim, "1 / head_dim");
  }

  void Presences(const Group& group, std::vector<Replacement>& out) const {
    const std::string_view name = LastName(group.rest);
    if (name == "logit_softcap")
      for (const double cap : {30.0, 50.0}) out.push_back({cap, "another model's soft cap"});
    if (name == "clamped_glu")  // gpt-oss'
      out.push_back({Json{{"alpha", 1.702}, {"limit", 7.0}, {"up_offset", 1.0}},
                     "another model's clamped GLU"});
    if (name == "scaling")
      for (const double factor : {2.0, 4.0, 8.0, 16.0, 32.0})
        out.push_back({Json{{"kind", "linear"}, {"factor", factor}}, "a usual RoPE factor"});
    if (name == "sliding_window") {
      for (const int64_t window : {512, 1024, 4096})
        out.push_back({window, "another model's window"});
    }
  }

  // --- Facts that belong together ---

  void Families() {
    const auto together = [&](const char* field, const auto& member, const char* why) {
      std::map<std::string, std::vector<const Group*>> by_value;
      for (const Group& group : groups_)
        if (LastName(group.rest) == field && !group.value.is_null() && member(group.rest))
          by_value[group.value.dump()].push_back(&group);
      for (const auto& [value, groups] : by_value) {
        if (groups.size() < 2) continue;
        for (const Replacement& replacement : Replacements(*groups.front())) {
          std::vector<FieldEdit> edits;
          for (const Group* group : groups)
            edits.push_back({group->Path(), replacement.value.dump()});
          Add(std::move(edits), Origin::kSystematic, replacement.why + why);
        }
      }
    };
    const auto is_qk = [](std::string_view rest) {
      return rest.find("q_norm") != std::string_view::npos ||
             rest.find("k_norm") != std::string_view::npos;
    };
    const auto any = [](std::string_view) { return true; };
    for (const char* field : {"weight_rounding", "weight_offset", "eps", "kind", "weight"}) {
      together(field, any, ", in every norm");
      together(field, is_qk, ", in the norms of q and k");
      together(
          field, [&](std::string_view rest) { return !is_qk(rest); },
          ", in every norm of the residual stream");
    }
    for (const char* field : {"activation", "alpha", "limit", "up_offset"})
      together(field, any, ", wherever it is");
    for (const char* field : {"rounding"}) together(field, any, ", of every scale");
    // Biases, and norms that come in pairs, have names of their own.
    const std::vector<std::vector<std::string_view>> sets = {
        {"q_bias", "k_bias", "v_bias"},
        {"q_bias", "k_bias", "v_bias", "o_bias"},
        {"up_bias", "down_bias"},
        {"q_norm", "k_norm"},
        {"mixer_pre_norm", "mlp_pre_norm"},
        {"mixer_post_norm", "mlp_post_norm"},
        {"q_bias", "k_bias", "v_bias", "o_bias", "up_bias", "down_bias"}};
    for (const auto& names : sets) {
      std::vector<FieldEdit> edits;
      for (const Group& group : groups_) {
        if (std::find(names.begin(), names.end(), LastName(group.rest)) == names.end()) continue;
        if (group.value == Json(true)) edits.push_back({group.Path(), "false"});
        if (group.value.is_object()) edits.push_back({group.Path(), "null"});
      }
      if (edits.size() > 1)
        Add(std::move(edits), Origin::kSystematic, "facts that come together are left out");
    }
  }

  // --- Schedules: what changes from layer to layer ---

  // The value of `rest` in each layer that has attention.
  struct Schedule {
    std::vector<int64_t> layers;
    std::vector<Json> values;
  };
  Schedule ScheduleOf(const std::string& rest) const {
    Schedule schedule;
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const auto value = GetField(spec_, fmt::format("layers[{}].{}", i, rest));
      if (!value) continue;
      schedule.layers.push_back(static_cast<int64_t>(i));
      schedule.values.push_back(*value);
    }
    return schedule;
  }

  static std::vector<FieldEdit> Written(const std::string& rest, const Schedule& schedule) {
    std::map<std::string, std::vector<int64_t>> by_value;
    for (size_t i = 0; i < schedule.layers.size(); ++i)
      by_value[schedule.values[i].dump()].push_back(schedule.layers[i]);
    std::vector<FieldEdit> edits;
    for (const auto& [value, layers] : by_value)
      edits.push_back({fmt::format("layers[{}].{}", JoinNumbers(layers), rest), value});
    return edits;
  }

  void Schedules() {
    const std::vector<std::vector<std::string>> together = {
        {"mixer.sliding_window"}, {"mixer.rope"}, {"mixer.sliding_window", "mixer.rope"}};
    for (const auto& rests : together) {
      std::vector<Schedule> schedules;
      for (const std::string& rest : rests) schedules.push_back(ScheduleOf(rest));
      const size_t n = schedules.front().layers.size();
      if (n < 2) continue;
      // Layer i takes what layer source(i) has.
      const auto arrange = [&](const auto& source, std::string why) {
        std::vector<FieldEdit> edits;
        for (size_t s = 0; s < rests.size(); ++s) {
          Schedule arranged = schedules[s];
          for (size_t i = 0; i < n; ++i) {
            const size_t from = source(i);
            if (from >= n) return;
            arranged.values[i] = schedules[s].values[from];
          }
          const auto written = Written(rests[s], arranged);
          edits.insert(edits.end(), written.begin(), written.end());
        }
        Add(std::move(edits), Origin::kSystematic, std::move(why));
      };
      // The first layer of each kind.
      std::vector<size_t> kinds, kind_of(n);
      for (size_t i = 0; i < n; ++i) {
        const auto same = [&](size_t k) {
          return std::all_of(schedules.begin(), schedules.end(),
                             [&](const Schedule& s) { return s.values[i] == s.values[k]; });
        };
        const auto kind = std::find_if(kinds.begin(), kinds.end(), same);
        kind_of[i] = static_cast<size_t>(kind - kinds.begin());
        if (kind == kinds.end()) kinds.push_back(i);
      }
      if (kinds.size() < 2) continue;
      arrange([&](size_t i) { return (i + 1) % n; }, "the schedule begins one layer late");
      arrange([&](size_t i) { return (i + n - 1) % n; }, "the schedule begins one layer early");
      arrange([&](size_t i) { return n - 1 - i; }, "the schedule is reversed");
      for (const size_t kind : kinds)
        arrange([&](size_t) { return kind; }, "every layer is of one kind");
      if (kinds.size() != 2) continue;
      arrange([&](size_t i) { return kinds[1 - kind_of[i]]; }, "the schedule is inverted");
      for (size_t every = 2; every <= std::min<size_t>(n, 8); ++every)
        for (size_t phase = 0; phase < every; ++phase)
          for (size_t rare = 0; rare < 2; ++rare)
            if (phase == 0 || phase + 1 == every)
              arrange([&](size_t i) { return kinds[i % every == phase ? rare : 1 - rare]; },
                      fmt::format("one kind in every {} layers", every));
      for (size_t first = 1; first < n; ++first)
        for (size_t kind = 0; kind < 2; ++kind)
          arrange([&](size_t i) { return kinds[i < first ? kind : 1 - kind]; },
                  "one kind first, then the other");
    }
  }

  const ModelSpec& spec_;
  std::map<WeightId, std::pair<int64_t, int64_t>> slots_;
  std::vector<Group> groups_;
  std::set<std::string> seen_;
  std::vector<Hypothesis> grouped_, singles_;
};

}  // namespace

std::vector<Hypothesis> SystematicEdits(const ModelSpec& spec) { return Generator(spec).Run(); }

}  // namespace lockstep

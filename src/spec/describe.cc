// Describe of fields.h.
#include <algorithm>

#include "spec/field_text.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

constexpr size_t kColumns = 100;
// A group of layers with at most this many differences from the first group is shown by them.
constexpr size_t kFewDifferences = 8;

// Columns on a terminal: UTF-8 continuation bytes take none.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The first item of a list "a 1, b (c, d), e" with its comma; inside brackets if `anywhere`.
std::string_view FirstItem(std::string_view text, bool anywhere) {
  int depth = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (text[i] == ',' && text[i + 1] == ' ' && (depth == 0 || anywhere))
      return text.substr(0, i + 2);
  }
  return text;
}

// Appends "indent + label: text", broken after commas; the lines that follow stand four deeper. An
// item with brackets is broken only if it is longer than a line.
void AddLine(std::string& out, size_t indent, std::string_view label, std::string_view text) {
  std::string line(indent, ' ');
  line += label;
  line += ": ";
  size_t empty = line.size();  // a line of this size holds no item yet
  while (!text.empty()) {
    std::string_view item = FirstItem(text, false);
    if (indent + 4 + Width(item) > kColumns) item = FirstItem(text, true);
    text.remove_prefix(item.size());
    const size_t visible = Width(item) - (item.ends_with(' ') ? 1 : 0);
    if (line.size() > empty && Width(line) + visible > kColumns) {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(indent + 4, ' ');
      empty = line.size();
    }
    line += item;
  }
  out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

// One line per field that is not neutral; neighbours with the same text share a line.
void AddLayer(std::string& out, const LayerSpec& layer) {
  const LayerSpec neutral{};
  std::vector<std::pair<std::string, std::string>> lines;
  std::apply(
      [&](const auto&... field) {
        const auto one = [&](std::string_view name, const auto& value, const auto& usual) {
          if constexpr (!kIsVariant<std::remove_cvref_t<decltype(value)>>)
            if (value == usual) return;
          std::string text = ShortText(value);
          if (!lines.empty() && lines.back().second == text) {
            lines.back().first += fmt::format(", {}", name);
          } else {
            lines.emplace_back(name, std::move(text));
          }
        };
        (one(field.name, layer.*(field.member), neutral.*(field.member)), ...);
      },
      FieldsOf<LayerSpec>());
  for (const auto& [label, text] : lines) AddLine(out, 2, label, text);
}

struct LayerGroup {
  const LayerSpec* layer;
  std::vector<int64_t> indices;
};

std::vector<LayerGroup> GroupLayers(const std::vector<LayerSpec>& layers) {
  std::vector<LayerGroup> groups;
  for (size_t i = 0; i < layers.size(); ++i) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const LayerGroup& g) { return *g.layer == layers[i]; });
    if (group == groups.end()) group = groups.insert(group, LayerGroup{&layers[i], {}});
    group->indices.push_back(static_cast<int64_t>(i));
  }
  return groups;
}

void AddLayers(std::string& out, const std::vector<LayerSpec>& layers) {
  const std::vector<LayerGroup> groups = GroupLayers(layers);
  for (const LayerGroup& group : groups) {
    const std::string title = fmt::format("{} {}", group.indices.size() == 1 ? "layer" : "layers",
                                          JoinNumbers(group.indices));
    const std::vector<FieldDifference> differences = Diff(*groups.front().layer, *group.layer);
    if (&group == &groups.front() || differences.size() > kFewDifferences) {
      out += fmt::format("{}:\n", title);
      AddLayer(out, *group.layer);
      continue;
    }
    out += fmt::format("{}: as layer 0, but\n", title);
    for (const FieldDifference& difference : differences)
      AddLine(out, 2, difference.path, fmt::format("{} → {}", difference.a, difference.b));
  }
}

}  // namespace

std::string Describe(const ModelSpec& spec) {
  std::string out;
  AddLine(out, 0, spec.architecture.empty() ? "model" : spec.architecture,
          fmt::format("{} {}, max_position_embeddings {}", spec.layers.size(),
                      spec.layers.size() == 1 ? "layer" : "layers", spec.max_position_embeddings));
  VisitFields(spec, [&](std::string_view name, const auto& field) {
    using Member = std::remove_cvref_t<decltype(field)>;
    if constexpr (kIsVector<Member>) {
      AddLayers(out, field);
    } else if constexpr (kIsStruct<Member>) {
      if (std::string text = FieldsText(field); !text.empty()) AddLine(out, 0, name, text);
    }
  });
  return out;
}

std::string Describe(const RunSpec& run) {
  const std::string text = FieldsText(run);
  return text.empty() ? "the whole prompt at once, with a cache, no padding" : text;
}

}  // namespace lockstep

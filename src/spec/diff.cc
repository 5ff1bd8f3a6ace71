#include <algorithm>
#include <charconv>
#include <map>

#include "spec/field_json.h"
#include "spec/field_text.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

// Lists longer than this are shown by their first difference.
constexpr size_t kShortList = 8;

template <typename T>
FieldDifference ListDifference(const std::string& path, const std::vector<T>& a,
                               const std::vector<T>& b) {
  if (std::max(a.size(), b.size()) <= kShortList) return {path, ListText(a), ListText(b)};
  if (a.size() != b.size())
    return {path, fmt::format("{} values", a.size()), fmt::format("{} values", b.size())};
  const size_t i =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  const auto text = [&](const std::vector<T>& list) {
    return fmt::format("{} at [{}] of {} values", ShortText(list[i]), i, list.size());
  };
  return {path, text(a), text(b)};
}

template <typename T>
void Compare(const std::string& path, const T& a, const T& b, std::vector<FieldDifference>& out) {
  if (a == b) return;
  if constexpr (kIsStruct<T>) {
    std::apply(
        [&](const auto&... field) {
          (Compare(FieldPath(path, field.name), a.*(field.member), b.*(field.member), out), ...);
        },
        FieldsOf<T>());
    return;
  } else if constexpr (kIsOptional<T>) {
    if (a && b) return Compare(path, *a, *b, out);
  } else if constexpr (kIsVariant<T>) {
    if (a.index() == b.index()) {
      std::visit(
          [&](const auto& x) {
            Compare(path, x, std::get<std::remove_cvref_t<decltype(x)>>(b), out);
          },
          a);
      return;
    }
  } else if constexpr (kIsVector<T>) {
    if constexpr (kIsStruct<typename T::value_type>) {
      if (a.size() != b.size()) out.push_back({path, ShortText(a), ShortText(b)});
      for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        Compare(fmt::format("{}[{}]", path, i), a[i], b[i], out);
    } else {
      out.push_back(ListDifference(path, a, b));
    }
    return;
  }
  out.push_back({path, ShortText(a), ShortText(b)});
}

template <typename T>
std::vector<FieldDifference> AllDifferences(const T& a, const T& b) {
  std::vector<FieldDifference> out;
  Compare("", a, b, out);
  return out;
}

// "layers[3].mlp" -> 3 and ".mlp"; absent for a path outside the layers.
std::optional<std::pair<int64_t, std::string>> SplitLayer(const std::string& path) {
  constexpr std::string_view kPrefix = "layers[";
  if (!path.starts_with(kPrefix)) return std::nullopt;
  int64_t layer = 0;
  const char* end = path.data() + path.size();
  const auto [stop, error] = std::from_chars(path.data() + kPrefix.size(), end, layer);
  if (error != std::errc{} || stop == end || *stop != ']') return std::nullopt;
  return std::pair{layer, std::string(stop + 1, end)};
}

}  // namespace

std::string ToString(const FieldDifference& difference) {
  return fmt::format("{}: {} → {}", difference.path, difference.a, difference.b);
}

std::vector<FieldDifference> Diff(const ModelSpec& a, const ModelSpec& b) {
  return AllDifferences(a, b);
}
std::vector<FieldDifference> Diff(const RunSpec& a, const RunSpec& b) {
  return AllDifferences(a, b);
}
std::vector<FieldDifference> Diff(const LayerSpec& a, const LayerSpec& b) {
  return AllDifferences(a, b);
}

std::vector<FieldDifference> JoinLayers(const std::vector<FieldDifference>& differences) {
  struct Group {
    FieldDifference first;
    std::string rest;             // of the path, after the layer
    std::vector<int64_t> layers;  // empty: a path outside the layers
  };
  std::vector<Group> groups;
  std::map<std::array<std::string, 3>, size_t> known;
  for (const FieldDifference& difference : differences) {
    const auto split = SplitLayer(difference.path);
    if (!split) {
      groups.push_back({difference, "", {}});
      continue;
    }
    const auto& [layer, rest] = *split;
    const auto [entry, is_new] =
        known.try_emplace({rest, difference.a, difference.b}, groups.size());
    if (is_new) groups.push_back({difference, rest, {}});
    groups[entry->second].layers.push_back(layer);
  }
  std::vector<FieldDifference> joined;
  for (Group& group : groups) {
    if (!group.layers.empty())
      group.first.path = fmt::format("layers[{}]{}", JoinNumbers(group.layers), group.rest);
    joined.push_back(std::move(group.first));
  }
  return joined;
}

std::string JoinNumbers(const std::vector<int64_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;  // "0,1" is no longer than "0-1", and plainer
    if (!text.empty()) text += ",";
    text += fmt::format("{}", numbers[i]);
    if (end - i > 1) text += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace lockstep

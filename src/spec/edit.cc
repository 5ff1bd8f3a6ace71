// Edit by path: SetField, GetField and FieldPaths of fields.h.
#include <charconv>

#include "spec/field_json.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

// "[0,2-4].mlp" -> 0, 2, 3, 4; moves `rest` past the bracket.
Result<std::vector<size_t>> TakeIndices(std::string_view& rest, size_t size,
                                        const std::string& path) {
  const auto bad = [&](std::string_view found) {
    return UsageError(
        "{}: expected an index from 0 to {} in brackets, such as [0], [0,2-4] or [*], found \"{}\"",
        path, static_cast<int64_t>(size) - 1, found);
  };
  const size_t close = rest.find(']');
  if (!rest.starts_with('[') || close == std::string_view::npos) return bad(rest);
  std::string_view inside = rest.substr(1, close - 1);
  rest.remove_prefix(close + 1);
  std::vector<size_t> indices;
  if (inside == "*") {
    for (size_t i = 0; i < size; ++i) indices.push_back(i);
    return indices;
  }
  const char* at = inside.data();
  const char* end = at + inside.size();
  while (true) {
    size_t first = 0;
    auto [stop, error] = std::from_chars(at, end, first);
    if (error != std::errc{}) return bad(inside);
    size_t last = first;
    if (stop != end && *stop == '-') {
      const auto range = std::from_chars(stop + 1, end, last);
      if (range.ec != std::errc{}) return bad(inside);
      stop = range.ptr;
    }
    // Each index at most once and in order, so that a path stays as short as the list it names.
    if (last < first || last >= size || (!indices.empty() && first <= indices.back()))
      return bad(inside);
    for (size_t i = first; i <= last; ++i) indices.push_back(i);
    if (stop == end) return indices;
    if (*stop != ',') return bad(inside);
    at = stop + 1;
  }
}

// Follows `rest` from `object`, which stands at `path`, and calls act(field, its path) at its end.
template <typename T, typename Act>
Status Follow(T& object, std::string_view rest, const std::string& path, const Act& act) {
  using Bare = std::remove_const_t<T>;
  if (rest.empty()) return act(object, path);
  if constexpr (kIsOptional<Bare>) {
    if (object) return Follow(*object, rest, path, act);
    return UsageError(
        "{}: expected it to be present, for it to have \"{}\"; it is absent (set it "
        "as a whole)",
        path, rest);
  } else if constexpr (kIsVariant<Bare>) {
    return std::visit([&](auto& x) { return Follow(x, rest, path, act); }, object);
  } else if constexpr (kIsVector<Bare>) {
    LS_TRY(const std::vector<size_t> indices, TakeIndices(rest, object.size(), path));
    for (const size_t i : indices)
      LS_RETURN_IF_ERROR(Follow(object[i], rest, fmt::format("{}[{}]", path, i), act));
    return {};
  } else if constexpr (kIsStruct<Bare>) {
    std::string_view name = rest;
    if (!path.empty() && name.starts_with('.')) name.remove_prefix(1);
    name = name.substr(0, name.find_first_of(".["));
    rest.remove_prefix(static_cast<size_t>(name.data() - rest.data()) + name.size());
    Status status;
    bool found = false;
    std::vector<std::string> known;
    VisitFields(object, [&](std::string_view field_name, auto& field) {
      known.emplace_back(field_name);
      if (field_name != name) return;
      found = true;
      status = Follow(field, rest, FieldPath(path, name), act);
    });
    if (found) return status;
    const std::string near = NearestName(name, known);
    return UsageError("{}: expected one of the fields {}, found \"{}\"{}",
                      path.empty() ? "the path" : path, fmt::join(known, ", "), name,
                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
  } else {
    return UsageError("{}: expected the path to end here (this is one value), found \"{}\"", path,
                      rest);
  }
}

template <typename T>
void AddPaths(const T& object, const std::string& path, std::vector<std::string>& out) {
  if constexpr (kIsStruct<T>) {
    VisitFields(object, [&](std::string_view name, const auto& field) {
      AddPaths(field, FieldPath(path, name), out);
    });
  } else if constexpr (kIsOptional<T>) {
    using Held = typename T::value_type;
    if constexpr (!kIsVariant<Held>) out.push_back(path);  // a variant adds it itself
    if constexpr (kIsStruct<Held> || kIsVariant<Held>) {
      if (object) {
        AddPaths(*object, path, out);
      } else if constexpr (kIsVariant<Held>) {
        out.push_back(path);
      }
    }
  } else if constexpr (kIsVariant<T>) {
    out.push_back(path);
    std::visit([&](const auto& x) { AddPaths(x, path, out); }, object);
  } else if constexpr (kIsVector<T>) {
    if constexpr (kIsStruct<typename T::value_type>) {
      for (size_t i = 0; i < object.size(); ++i)
        AddPaths(object[i], fmt::format("{}[{}]", path, i), out);
    } else {
      out.push_back(path);
    }
  } else {
    out.push_back(path);
  }
}

template <typename T>
Status Set(T& object, std::string_view path, std::string_view value_json, std::string_view whole) {
  LS_TRY(const Json json, ParseJson(value_json, path));
  T edited = object;
  LS_RETURN_IF_ERROR(Follow(edited, path, "", [&](auto& field, const std::string& at) {
    return ReadJson(json, {"", at.empty() ? std::string(whole) : at}, field);
  }));
  object = std::move(edited);
  return {};
}

}  // namespace

Status SetField(ModelSpec& spec, std::string_view path, std::string_view value_json) {
  return Set(spec, path, value_json, "the spec");
}

Status SetField(RunSpec& run, std::string_view path, std::string_view value_json) {
  return Set(run, path, value_json, "the run");
}

Result<Json> GetField(const ModelSpec& spec, std::string_view path) {
  std::vector<Json> found;
  LS_RETURN_IF_ERROR(Follow(spec, path, "", [&](const auto& field, const std::string&) -> Status {
    found.push_back(WriteJson(field));
    return {};
  }));
  if (found.size() != 1)
    return UsageError("{}: expected the path of one field, found {} fields", path, found.size());
  return std::move(found.front());
}

std::vector<std::string> FieldPaths(const ModelSpec& spec) {
  std::vector<std::string> paths;
  AddPaths(spec, "", paths);
  return paths;
}

}  // namespace lockstep

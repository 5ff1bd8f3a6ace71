// JSON of any value that the field lists know: inside spec/ only (fields.h is the interface).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/nearest.h"
#include "spec/field_list.h"

namespace lockstep {

template <typename T>
Json WriteJson(const T& value) {
  if constexpr (kIsStruct<T>) {
    Json json = Json::object();
    VisitFields(value, [&](std::string_view name, const auto& field) {
      json[std::string(name)] = WriteJson(field);
    });
    return json;
  } else if constexpr (kIsOptional<T>) {
    return value ? WriteJson(*value) : Json(nullptr);
  } else if constexpr (kIsVariant<T>) {
    Json json = {{"kind", NameOf(value)}};
    std::visit([&](const auto& alternative) { json.update(WriteJson(alternative)); }, value);
    return json;
  } else if constexpr (kIsVector<T>) {
    Json json = Json::array();
    for (const auto& element : value) json.push_back(WriteJson(element));
    return json;
  } else if constexpr (std::is_enum_v<T>) {
    return Json(NameOf(value));
  } else {
    return Json(value);
  }
}

// What was found, for messages: `the string "abc"`, `an object`.
std::string FoundText(const Json& json);

inline std::string FieldPath(std::string_view path, std::string_view name) {
  return fmt::format("{}{}{}", path, path.empty() ? "" : ".", name);
}

// Where something is: the place (may be empty), then the path (empty: the whole).
struct JsonPlace {
  std::string_view place;
  std::string path;

  JsonPlace At(std::string_view name) const { return {place, FieldPath(path, name)}; }
  JsonPlace At(size_t index) const { return {place, fmt::format("{}[{}]", path, index)}; }
  std::string Text() const {
    return fmt::format("{}{}{}", place, place.empty() || path.empty() ? "" : ": ", path);
  }
  tl::unexpected<Error> Expected(std::string_view what, const Json& json) const {
    return InputError("{}: expected {}, found {}", Text(), what, FoundText(json));
  }
};

// "one of "a", "b"": the index of the name in the table.
template <size_t n>
Result<size_t> ReadName(const Json& json, const JsonPlace& at, const Names<n>& names) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const auto found = std::find(names.begin(), names.end(), text);
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
  }
  return at.Expected(fmt::format("one of \"{}\"", fmt::join(names, "\", \"")), json);
}

template <typename T>
Status ReadJson(const Json& json, const JsonPlace& at, T& out);

// The object's fields; `kind` is allowed besides them for an alternative of a variant.
template <typename T>
Status ReadFields(const Json& json, const JsonPlace& at, T& out, bool has_kind) {
  std::vector<std::string> known;
  if (has_kind) known.push_back("kind");
  VisitFields(out, [&](std::string_view name, auto&) { known.emplace_back(name); });
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = NearestName(key, known);
    return InputError("{}: expected only the fields {}, found \"{}\"{}", at.Text(),
                      fmt::join(known, ", "), key,
                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
  }
  Status status;
  VisitFields(out, [&](std::string_view name, auto& field) {
    if (!status) return;
    const auto found = json.find(std::string(name));
    if (found == json.end()) {
      status = InputError("{}: expected a value (null where it is absent), found no such key",
                          at.At(name).Text());
    } else {
      status = ReadJson(*found, at.At(name), field);
    }
  });
  return status;
}

// Starts the alternative with the given index afresh.
template <typename Variant, size_t i = 0>
void StartAlternative(Variant& variant, size_t index) {
  if constexpr (i < std::variant_size_v<Variant>) {
    if (i == index) {
      variant.template emplace<i>();
    } else {
      StartAlternative<Variant, i + 1>(variant, index);
    }
  }
}

template <typename T>
Status ReadJson(const Json& json, const JsonPlace& at, T& out) {
  if constexpr (kIsStruct<T>) {
    if (!json.is_object()) return at.Expected("an object", json);
    return ReadFields(json, at, out, false);
  } else if constexpr (kIsOptional<T>) {
    if (json.is_null()) {
      out.reset();
      return {};
    }
    return ReadJson(json, at, out.emplace());
  } else if constexpr (kIsVariant<T>) {
    if (!json.is_object()) return at.Expected("an object with a \"kind\"", json);
    const auto kind = json.find("kind");
    if (kind == json.end()) {
      return InputError("{}: expected one of \"{}\", found no such key", at.At("kind").Text(),
                        fmt::join(NamesOf<T>(), "\", \""));
    }
    LS_TRY(const size_t index, ReadName(*kind, at.At("kind"), NamesOf<T>()));
    StartAlternative(out, index);
    return std::visit([&](auto& x) { return ReadFields(json, at, x, true); }, out);
  } else if constexpr (kIsVector<T>) {
    if (!json.is_array()) return at.Expected("a list", json);
    out.assign(json.size(), {});
    for (size_t i = 0; i < json.size(); ++i)
      LS_RETURN_IF_ERROR(ReadJson(json[i], at.At(i), out[i]));
    return {};
  } else if constexpr (std::is_enum_v<T>) {
    LS_TRY(const size_t index, ReadName(json, at, NamesOf<T>()));
    out = static_cast<T>(index);
    return {};
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return at.Expected("true or false", json);
    out = json.get<bool>();
    return {};
  } else if constexpr (std::is_same_v<T, int64_t>) {
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > kMax))
      return at.Expected("a whole number of 64 bits", json);
    out = json.get<int64_t>();
    return {};
  } else if constexpr (std::is_same_v<T, double>) {
    if (!json.is_number()) return at.Expected("a number", json);
    out = json.get<double>();
    return {};
  } else {
    static_assert(std::is_same_v<T, std::string>);
    if (!json.is_string()) return at.Expected("a string", json);
    out = json.get<std::string>();
    return {};
  }
}

}  // namespace lockstep

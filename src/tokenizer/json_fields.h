// Reading fields of a large JSON file (simdjson) with errors that name the field:
// `model.merges[3]`.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

class JsonField {
 public:
  JsonField(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  simdjson::dom::element element() const { return element_; }
  bool IsNull() const { return element_.is_null(); }
  bool IsObject() const { return element_.is_object(); }

  std::string PathOf(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  }

  // A key that may be absent or null.
  std::optional<JsonField> Find(std::string_view key) const {
    simdjson::dom::element value;
    if (!element_.is_object() || element_[key].get(value) != simdjson::SUCCESS || value.is_null())
      return std::nullopt;
    return JsonField(value, PathOf(key));
  }
  Result<JsonField> Get(std::string_view key) const {
    if (!element_.is_object()) return Wrong("an object");
    auto field = Find(key);
    if (!field) return InputError("{} is missing", PathOf(key));
    return *std::move(field);
  }

  Result<std::string_view> String() const { return As<std::string_view>("a string"); }
  Result<bool> Bool() const { return As<bool>("true or false"); }
  Result<int64_t> Integer() const { return As<int64_t>("a whole number"); }
  Result<double> Number() const { return As<double>("a number"); }
  Result<simdjson::dom::array> Array() const { return As<simdjson::dom::array>("a list"); }
  Result<simdjson::dom::object> Object() const { return As<simdjson::dom::object>("an object"); }

  Result<std::string_view> String(std::string_view key) const {
    LS_TRY(const JsonField field, Get(key));
    return field.String();
  }
  Result<bool> Bool(std::string_view key) const {
    LS_TRY(const JsonField field, Get(key));
    return field.Bool();
  }
  Result<bool> Bool(std::string_view key, bool absent) const {
    const auto field = Find(key);
    if (!field) return absent;
    return field->Bool();
  }
  Result<std::string> String(std::string_view key, std::string_view absent) const {
    const auto field = Find(key);
    if (!field) return std::string(absent);
    LS_TRY(const std::string_view text, field->String());
    return std::string(text);
  }
  Result<int64_t> Integer(std::string_view key) const {
    LS_TRY(const JsonField field, Get(key));
    return field.Integer();
  }
  Result<uint64_t> Count(std::string_view key, uint64_t absent) const {
    const auto field = Find(key);
    if (!field) return absent;
    LS_TRY(const int64_t value, field->Integer());
    if (value < 0) return InputError("{} is {}, expected 0 or more", field->path(), value);
    return static_cast<uint64_t>(value);
  }

  tl::unexpected<Error> Wrong(std::string_view expected) const {
    return InputError("{} is {}, expected {}", path_.empty() ? "the file" : path_, Kind(),
                      expected);
  }

 private:
  template <typename T>
  Result<T> As(std::string_view expected) const {
    T value;
    if (element_.get(value) != simdjson::SUCCESS) return Wrong(expected);
    return value;
  }
  std::string_view Kind() const {
    using Type = simdjson::dom::element_type;
    switch (element_.type()) {
      case Type::ARRAY:
        return "a list";
      case Type::OBJECT:
        return "an object";
      case Type::STRING:
        return "a string";
      case Type::BOOL:
        return "true or false";
      case Type::NULL_VALUE:
        return "null";
      default:
        return "a number";
    }
  }

  simdjson::dom::element element_;
  std::string path_;
};

}  // namespace lockstep

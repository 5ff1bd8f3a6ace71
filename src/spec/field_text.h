// Text of any value that the field lists know, for people: inside spec/ only (fields.h is the
// interface).
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "spec/field_list.h"

namespace lockstep {

// Enums that choose between equals, and so have no neutral value: printed always, without the
// field's name.
template <typename T>
inline constexpr bool kIsChoice = std::is_same_v<T, NormKind> || std::is_same_v<T, Activation> ||
                                  std::is_same_v<T, RouterScoring>;

template <typename T>
std::string ShortText(const T& value);

// One field, by its name and what is worth saying; empty for one at its neutral value.
template <typename T>
std::string FieldText(std::string_view name, const T& value, const T& neutral) {
  if constexpr (kIsChoice<T>) {
    return std::string(NameOf(value));
  } else if constexpr (kIsVariant<T>) {
    return fmt::format("{} ({})", name, ShortText(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value == neutral ? "" : fmt::format("{}{}", value ? "" : "no ", name);
  } else if (value == neutral) {
    return "";
  } else if constexpr (kIsOptional<T>) {
    using Held = typename T::value_type;
    if (!value) return fmt::format("no {}", name);
    if constexpr (kIsStruct<Held> || kIsVariant<Held>) {
      return fmt::format("{} ({})", name, ShortText(*value));
    } else {
      return fmt::format("{} {}", name, ShortText(*value));
    }
  } else if constexpr (kIsStruct<T> && !std::is_same_v<T, Scale>) {
    return fmt::format("{} ({})", name, ShortText(value));
  } else {
    return fmt::format("{} {}", name, ShortText(value));
  }
}

// "rms, eps 1e-06, weight_offset 1": the fields that are not as in a fresh T.
template <typename T>
std::string FieldsText(const T& object) {
  const T neutral{};
  std::string text;
  const auto add = [&](const auto& field) {
    const std::string item = FieldText(field.name, object.*(field.member), neutral.*(field.member));
    if (!text.empty() && !item.empty()) text += ", ";
    text += item;
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, FieldsOf<T>());
  return text;
}

inline std::string ScaleText(const Scale& scale) {
  std::string text = fmt::format("{}{}", scale.divide ? "/ " : "", scale.value);
  if (scale.rounding != Rounding::kNone)
    text += fmt::format(" rounded to {}", NameOf(scale.rounding));
  return text;
}

// Long lists are cut: [1, 1.02, 1.05, ... 64 values].
template <typename T>
std::string ListText(const std::vector<T>& list, size_t longest = 8) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == 3 && list.size() > longest) return text + fmt::format(", ... {} values]", list.size());
    text += fmt::format("{}{}", i > 0 ? ", " : "", ShortText(list[i]));
  }
  return text + "]";
}

template <typename T>
std::string ShortText(const T& value) {
  if constexpr (std::is_same_v<T, Scale>) {
    return ScaleText(value);
  } else if constexpr (kIsOptional<T>) {
    return value ? ShortText(*value) : "none";
  } else if constexpr (kIsVariant<T>) {
    const std::string fields = std::visit([](const auto& x) { return FieldsText(x); }, value);
    return fmt::format("{}{}{}", NameOf(value), fields.empty() ? "" : " ", fields);
  } else if constexpr (kIsVector<T>) {
    if constexpr (kIsStruct<typename T::value_type>) {
      return fmt::format("{} entries", value.size());
    } else {
      return ListText(value);
    }
  } else if constexpr (kIsStruct<T>) {
    const std::string fields = FieldsText(value);
    return fields.empty() ? "all neutral" : fields;
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(NameOf(value));
  } else {
    return fmt::format("{}", value);  // numbers, true and false, text
  }
}

}  // namespace lockstep

#include "jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/utf8.h"
#include "jinja/format.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

const FilterRow* FindFilter(std::string_view name) {
  for (const auto rows : {TextFilters(), SequenceFilters(), NumberFilters()})
    for (const FilterRow& row : rows)
      if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

bool ChargeCall(Budget* budget, const Value& self, Work work, const Arguments& arguments) {
  // Looking the name up and laying out the arguments takes as long as a few nodes.
  bool ok = budget->ChargeItems(3);
  if (self.is_string() || self.is(Kind::kBytes)) ok = budget->ChargeText(self.text().size(), work);
  for (const Value& argument : arguments.positional)
    if (argument.is_string()) ok = budget->ChargeText(argument.text().size(), Work::kScan);
  for (const auto& [name, argument] : arguments.named)
    if (argument.is_string()) ok = budget->ChargeText(argument.text().size(), Work::kScan);
  return ok && budget->ChargeItems(arguments.positional.size() + arguments.named.size());
}

Expected<std::vector<std::string_view>> Lines(Runtime& runtime, std::string_view text,
                                              bool keep_ends) {
  // At most one break at each control character and at each first byte of U+0085, U+2028, U+2029.
  const auto breaks = std::count_if(text.begin(), text.end(), [](char c) {
    return (c >= 0 && c < 0x20) || c == '\xC2' || c == '\xE2';
  });
  if (!runtime.budget()->Fits((static_cast<size_t>(breaks) + 1) * sizeof(std::string_view)))
    return Raise(ErrorKind::kLimit, "the lines of a text would not fit in the memory allowed");
  return SplitLines(text, keep_ends);
}

bool HasFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Expected<Value> CallFilter(Runtime& runtime, std::string_view name, const Value& value,
                           const Arguments& arguments) {
  const FilterRow* row = FindFilter(name);
  if (!row) return Raise(ErrorKind::kTemplateRuntime, "No filter named '{}'.", name);
  Budget* budget = runtime.budget();
  if (!ChargeCall(budget, value, row->work, arguments)) return tl::unexpected(budget->Error());
  if (row->signature == "*") return row->call(runtime, value, Bound(), arguments);
  LS_TRY(const Bound bound, Bound::Bind(name, row->signature, arguments));
  return row->call(runtime, value, bound, arguments);
}

Expected<Bound> Bound::Bind(std::string_view function, std::string_view signature,
                            const Arguments& arguments) {
  Bound bound;
  bool positional_only = false;
  std::vector<std::pair<std::string_view, bool>> params;  // name, optional
  if (signature.starts_with('!')) {                       // as C functions: no keywords
    positional_only = true;
    signature.remove_prefix(1);
  }
  while (!signature.empty()) {
    const size_t comma = signature.find(',');
    std::string_view name = signature.substr(0, comma);
    const bool optional = name.ends_with('=');
    if (optional) name.remove_suffix(1);
    params.emplace_back(name, optional);
    signature = comma == std::string_view::npos ? std::string_view() : signature.substr(comma + 1);
  }
  if (arguments.positional.size() > params.size())
    return PythonError("{}() takes at most {} arguments ({} given)", function, params.size(),
                       arguments.positional.size());
  bound.values_.resize(params.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    bound.values_[i] = arguments.positional[i];
  for (const auto& named : arguments.named) {
    const std::string& name = named.first;
    const Value& value = named.second;
    const auto it = std::find_if(params.begin(), params.end(),
                                 [&name = name](const auto& param) { return param.first == name; });
    if (it == params.end() || positional_only)
      return PythonError("{}() got an unexpected keyword argument '{}'", function, name);
    auto& slot = bound.values_[static_cast<size_t>(it - params.begin())];
    if (slot) return PythonError("{}() got multiple values for argument '{}'", function, name);
    slot = value;
  }
  for (size_t i = 0; i < params.size(); ++i)
    if (!params[i].second && !bound.values_[i])
      return PythonError("{}() missing 1 required positional argument: '{}'", function,
                         params[i].first);
  return bound;
}

Expected<int64_t> Bound::Integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  const Value& value = *values_[i];
  if (value.is_undefined()) return tl::unexpected(UndefinedError(value));
  if (!value.is_integral())
    return PythonError("'{}' object cannot be interpreted as an integer", TypeName(value));
  if (value.integer() > INT64_MAX || value.integer() < INT64_MIN)
    return PythonError("Python int too large to convert to C ssize_t");
  return static_cast<int64_t>(value.integer());
}

Expected<std::string> Bound::Text(size_t i, std::string_view fallback) const {
  if (!has(i) || values_[i]->is_none()) return std::string(fallback);
  if (!values_[i]->is_string())
    return PythonError("expected a string, got {}", TypeName(*values_[i]));
  return values_[i]->text();
}

namespace {

// Python reads the decimal digits of every script. Their code points come in runs of ten, zero
// first.
std::string AsciiDigits(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = NextCodePoint(text, i);
    if (c < 0x80 || !IsDecimal(c)) {
      out += text.substr(start, i - start);
      continue;
    }
    char32_t zero = c;
    while (IsDecimal(zero - 1)) --zero;
    out += static_cast<char>('0' + (c - zero) % 10);
  }
  return out;
}

}  // namespace

std::optional<Int> ParseInt(std::string_view original, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const std::string digits = AsciiDigits(Strip(original, Side::kBoth));
  std::string_view text = digits;
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefix = [&](char letter) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
  };
  if (prefix('x') && (base == 16 || base == 0)) {
    base = 16;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (prefix('o') && (base == 8 || base == 0)) {
    base = 8;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (prefix('b') && (base == 2 || base == 0)) {
    base = 2;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  if (text.empty()) return std::nullopt;
  Int value = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_') {
      if (!after_digit) return std::nullopt;
      after_digit = false;
      continue;
    }
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') digit = c - 'A' + 10;
    if (digit < 0 || digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Int>(digit), &value))
      return std::nullopt;
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> ParseFloat(std::string_view original) {
  const std::string text = AsciiDigits(Strip(original, Side::kBoth));
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      const bool between = i > 0 && i + 1 < text.size() &&
                           std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                           std::isdigit(static_cast<unsigned char>(text[i + 1]));
      if (!between) return std::nullopt;
      continue;
    }
    plain += text[i];
  }
  std::string_view body = plain;
  const bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  std::string lower(body);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = std::nan("");
  } else {
    if (lower.empty() || lower.find_first_not_of("0123456789.e+-") != std::string::npos)
      return std::nullopt;
    if (lower[0] == '+' || lower[0] == '-') return std::nullopt;
    char* end = nullptr;
    value = std::strtod(lower.c_str(), &end);
    if (end != lower.c_str() + lower.size()) return std::nullopt;
  }
  return negative ? -value : value;
}

}  // namespace lockstep::jinja

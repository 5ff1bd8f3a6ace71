// The tables of filters (x | name), tests (x is name) and methods (x.name()).
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "jinja/runtime.h"

namespace lockstep::jinja {

bool HasFilter(std::string_view name);
bool HasTest(std::string_view name);
Expected<Value> CallFilter(Runtime& runtime, std::string_view name, const Value& value,
                           const Arguments& arguments);
Expected<bool> CallTest(Runtime& runtime, std::string_view name, const Value& value,
                        const Arguments& arguments);

// The one place where a filter or method pays for its input and its arguments, before it runs; what
// it makes beyond them it reserves itself.
bool ChargeCall(Budget* budget, const Value& self, Work work, const Arguments& arguments);

// text.splitlines(), when the list of lines fits in memory.
Expected<std::vector<std::string_view>> Lines(Runtime& runtime, std::string_view text,
                                              bool keep_ends = false);

// The names in the tables.
std::vector<std::string_view> TestNames();
std::vector<std::string_view> MethodNames(const Value& self);

// A method of a str, list, tuple, dict, int, float, range or bytes, bound to `self`. Absent: no
// such.
Expected<std::optional<Value>> FindMethod(Runtime& runtime, const Value& self,
                                          std::string_view name);

// Arguments laid out as a signature asks: "width=,first=,blank=" (`=` optional), "..." takes the
// rest.
class Bound {
 public:
  static Expected<Bound> Bind(std::string_view function, std::string_view signature,
                              const Arguments& arguments);
  bool has(size_t i) const { return i < values_.size() && values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value Or(size_t i, Value fallback) const { return has(i) ? *values_[i] : fallback; }
  bool Flag(size_t i, bool fallback = false) const {
    return has(i) ? Truth(*values_[i]) : fallback;
  }
  // An integer argument, within 64 bits.
  Expected<int64_t> Integer(size_t i, int64_t fallback) const;
  // A string argument; `fallback` when absent or None.
  Expected<std::string> Text(size_t i, std::string_view fallback) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// One row of a table.
struct FilterRow {
  std::string_view name;
  std::string_view signature;  // "*": the function reads Arguments itself
  Expected<Value> (*call)(Runtime& runtime, const Value& value, const Bound& bound,
                          const Arguments& arguments);
  Work work = Work::kCharacters;  // on a value that is text
};
std::span<const FilterRow> TextFilters();      // filters_text.cc
std::span<const FilterRow> SequenceFilters();  // filters_sequence.cc
std::span<const FilterRow> NumberFilters();    // filters_number.cc

// What Python's int(text, base) and float(text) read; absent: ValueError.
std::optional<Int> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace lockstep::jinja

// The tests: `x is name`.
#include <cmath>

#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/unicode.h"

namespace lockstep::jinja {
namespace {

using A = const std::vector<Value>&;

Expected<bool> Remainder(Runtime& runtime, const Value& value, const Value& divisor, Int wanted) {
  LS_TRY(const Value rest, BinaryOp(runtime, '%', value, divisor));
  return Equal(rest, Value::Integer(wanted), runtime.budget());
}

Expected<bool> Identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return a.integer() == b.integer();
    case Kind::kFloat:
      return a.real() == b.real();
    case Kind::kString:
      return a.text() == b.text();
    default:
      return a.object() == b.object();
  }
}

// Is it the name of a filter (a test)? Looked up in a dict, so the value must be hashable.
Expected<bool> IsNameOf(Runtime& runtime, const Value& value, bool (*has)(std::string_view)) {
  LS_TRY([[maybe_unused]] const size_t hashable, Hash(value, runtime.budget()));
  return value.is_string() && has(value.text());
}

// str(value).islower() and .isupper()
Expected<bool> HasCase(Runtime& runtime, const Value& value, bool upper) {
  LS_TRY(const std::string text, Str(value, runtime.budget()));
  if (!runtime.budget()->ChargeText(text.size(), Work::kCharacters))
    return tl::unexpected(runtime.budget()->Error());
  bool cased = false;
  for (const char32_t c : Decode(text)) {
    if (upper ? IsLower(c) || IsTitle(c) : IsUpper(c) || IsTitle(c)) return false;
    cased |= upper ? IsUpper(c) : IsLower(c);
  }
  return cased;
}

struct TestRow {
  std::string_view name;
  size_t arguments;
  Expected<bool> (*call)(Runtime& runtime, const Value& value, A arguments);
};

#define LS_TEST(expression)                               \
  [](Runtime& r, const Value& x, A a) -> Expected<bool> { \
    (void)r, (void)x, (void)a;                            \
    return expression;                                    \
  }

constexpr TestRow kTests[] = {
    {"!=", 1, LS_TEST(!Equal(x, a[0], r.budget()))},
    {"<", 1, LS_TEST(Less(x, a[0], "<", r.budget()))},
    {"<=", 1, LS_TEST(Less(x, a[0], "<=", r.budget()))},
    {"==", 1, LS_TEST(Equal(x, a[0], r.budget()))},
    {">", 1, LS_TEST(Less(a[0], x, ">", r.budget()))},
    {">=", 1, LS_TEST(Less(a[0], x, ">=", r.budget()))},
    {"boolean", 0, LS_TEST(x.is(Kind::kBool))},
    {"callable", 0, LS_TEST(IsCallable(x))},
    {"defined", 0, LS_TEST(!x.is_undefined())},
    {"divisibleby", 1, LS_TEST(Remainder(r, x, a[0], 0))},
    {"eq", 1, LS_TEST(Equal(x, a[0], r.budget()))},
    {"equalto", 1, LS_TEST(Equal(x, a[0], r.budget()))},
    {"escaped", 0, LS_TEST(x.is_string() && x.markup())},
    {"even", 0, LS_TEST(Remainder(r, x, Value::Integer(2), 0))},
    {"false", 0, LS_TEST(x.is(Kind::kBool) && !x.truth())},
    {"filter", 0, LS_TEST(IsNameOf(r, x, HasFilter))},
    {"float", 0, LS_TEST(x.is(Kind::kFloat))},
    {"ge", 1, LS_TEST(Less(a[0], x, ">=", r.budget()))},
    {"greaterthan", 1, LS_TEST(Less(a[0], x, ">", r.budget()))},
    {"gt", 1, LS_TEST(Less(a[0], x, ">", r.budget()))},
    {"in", 1, LS_TEST(Contains(r, a[0], x))},
    {"integer", 0, LS_TEST(x.is(Kind::kInt))},
    {"iterable", 0, LS_TEST(IsIterable(x))},
    {"le", 1, LS_TEST(Less(x, a[0], "<=", r.budget()))},
    {"lessthan", 1, LS_TEST(Less(x, a[0], "<", r.budget()))},
    {"lower", 0, LS_TEST(HasCase(r, x, false))},
    {"lt", 1, LS_TEST(Less(x, a[0], "<", r.budget()))},
    {"mapping", 0, LS_TEST(x.is(Kind::kDict))},
    {"ne", 1, LS_TEST(!Equal(x, a[0], r.budget()))},
    {"none", 0, LS_TEST(x.is_none())},
    {"number", 0, LS_TEST(x.is_number())},
    {"odd", 0, LS_TEST(Remainder(r, x, Value::Integer(2), 1))},
    {"sameas", 1, LS_TEST(Identical(x, a[0]))},
    {"sequence", 0,
     LS_TEST(x.is_string() || x.is_sequence() || x.is(Kind::kDict) || x.is(Kind::kRange) ||
             x.is(Kind::kBytes) || x.is_undefined())},
    {"string", 0, LS_TEST(x.is_string())},
    {"test", 0, LS_TEST(IsNameOf(r, x, HasTest))},
    {"true", 0, LS_TEST(x.is(Kind::kBool) && x.truth())},
    {"undefined", 0, LS_TEST(x.is_undefined())},
    {"upper", 0, LS_TEST(HasCase(r, x, true))},
};
#undef LS_TEST

const TestRow* FindTest(std::string_view name) {
  for (const TestRow& row : kTests)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

std::vector<std::string_view> TestNames() {
  std::vector<std::string_view> names;
  for (const TestRow& row : kTests) names.push_back(row.name);
  return names;
}

bool HasTest(std::string_view name) { return FindTest(name) != nullptr; }

Expected<bool> CallTest(Runtime& runtime, std::string_view name, const Value& value,
                        const Arguments& arguments) {
  const TestRow* row = FindTest(name);
  if (!row) return Raise(ErrorKind::kTemplateRuntime, "No test named '{}'.", name);
  if (!ChargeCall(runtime.budget(), value, Work::kCopy, arguments))
    return tl::unexpected(runtime.budget()->Error());
  std::vector<Value> values = arguments.positional;
  for (const auto& [key, argument] : arguments.named) {
    // divisibleby(num=), sameas(other=), in(seq=); the operators take none
    const bool known = (name == "divisibleby" && key == "num") ||
                       (name == "sameas" && key == "other") || (name == "in" && key == "seq");
    if (!known) return PythonError("test {}() got an unexpected keyword argument '{}'", name, key);
    values.push_back(argument);
  }
  if (values.size() != row->arguments)
    return PythonError("test {}() takes {} arguments ({} given)", name, row->arguments + 1,
                       values.size() + 1);
  return row->call(runtime, value, values);
}

}  // namespace lockstep::jinja

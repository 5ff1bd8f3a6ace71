// Limits::max_steps bounds the time of a rendering whatever the template does with long text or
// lists: every filter, test, method and operator, on each in turn.
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "jinja/filters.h"
#include "jinja/jinja.h"
#include "jinja/needle.h"

namespace lockstep::jinja {
namespace {

// A hundredth of the default, which is meant to end in about a second.
constexpr uint64_t kSteps = 100'000;
// Processor time, far from what is measured (12 ms at most): work that the steps do not bound takes
// seconds. Instrumented code is an order of magnitude slower.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LS_INSTRUMENTED 1
#endif
#endif
#if defined(LS_INSTRUMENTED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSeconds = 5;
#else
constexpr double kSeconds = 0.5;
#endif

struct Subject {
  std::string_view name;
  Json value;
};

std::string Repeat(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

std::vector<Subject> Subjects() {
  Json list = Json::array(), strings = Json::array(), dict = Json::object();
  for (int i = 0; i < 8000; ++i) list.push_back(i % 7);
  for (int i = 0; i < 3000; ++i) strings.push_back(Repeat("Ab", 64));
  for (int i = 0; i < 3000; ++i) dict["key" + std::to_string(i)] = "A <b> " + std::to_string(i);
  return {{"ascii", Repeat("ab", 400'000)},
          {"words", Repeat("a-b <c\n", 400'000)},
          {"control", Repeat("\x01\"", 400'000)},
          {"tags", Repeat("<!--", 400'000)},
          {"blanks", Repeat(" ", 400'000)},
          {"digits", Repeat("1", 400'000)},
          {"unicode", Repeat("\xce\xa3\xe4\xb8\xad", 400'000)},
          {"list", list},
          {"strings", strings},
          {"dict", dict}};
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Renders `expression` a hundred thousand times. True when the limit ended it.
bool EndsInTime(const Subject& subject, const std::string& expression) {
  const auto parsed =
      Template::Parse("{% for i in range(100000) %}{% set y = " + expression + " %}{% endfor %}");
  if (!parsed) return false;  // not every combination is an expression
  const Json variables = {{"x", subject.value}, {"half", "aaaaaaaab"}};
  const Limits limits{.max_steps = kSteps};
  const double start = CpuSeconds();
  const auto rendered = parsed->Render(variables, Clock{}, limits);
  const double took = CpuSeconds() - start;
  EXPECT_LT(took, kSeconds) << expression << " on " << subject.name;
  EXPECT_FALSE(rendered) << expression << " on " << subject.name;
  return !rendered && rendered.error().kind == ErrorKind::kLimit;
}

TEST(JinjaBounds, EveryFilterEndsInTime) {
  int limited = 0;
  for (const Subject& subject : Subjects())
    for (const auto rows : {TextFilters(), SequenceFilters(), NumberFilters()})
      for (const FilterRow& row : rows)
        for (const std::string_view arguments : {"", "('a')", "(x)", "('a', 'b')", "(3)"}) {
          std::string filter = std::string(row.name) + std::string(arguments);
          limited += EndsInTime(subject, "x|" + filter);
          if (arguments.empty()) limited += EndsInTime(subject, "x|" + filter + "|list");
        }
  EXPECT_GT(limited, 300);
}

TEST(JinjaBounds, EveryTestEndsInTime) {
  int limited = 0;
  for (const Subject& subject : Subjects())
    for (const std::string_view name : TestNames())
      for (const std::string_view arguments : {"", "(x)", "(x ~ 'c')", "('ac')"})
        limited += EndsInTime(subject, "x is " + std::string(name) + std::string(arguments));
  EXPECT_GT(limited, 100);
}

TEST(JinjaBounds, EveryMethodEndsInTime) {
  int limited = 0;
  for (const Subject& subject : Subjects()) {
    Value self = MakeString(nullptr, "");
    if (subject.value.is_array()) self = *MakeList(nullptr, {});
    if (subject.value.is_object()) self = *MakeDict(nullptr, {});
    for (const std::string_view name : MethodNames(self))
      for (const std::string_view arguments :
           {"()", "('ac')", "(x)", "('b', 'cd')", "(500000)", "(x, x)", "('q', 5)",
            "(x[:1000] ~ 'c')", "(500000, '\u4e2d')"})
        limited += EndsInTime(subject, "x." + std::string(name) + std::string(arguments));
  }
  EXPECT_GT(limited, 200);
}

TEST(JinjaBounds, EveryOperatorEndsInTime) {
  int limited = 0;
  for (const Subject& subject : Subjects())
    for (const std::string_view expression : {"x + x",
                                              "x ~ x",
                                              "x * 2",
                                              "x * 1",
                                              "x == x",
                                              "x == x * 1",
                                              "x != x * 1",
                                              "x < x * 1",
                                              "x >= x * 1",
                                              "'ac' in x",
                                              "x in x",
                                              "x not in x",
                                              "1 in x",
                                              "x[1:]",
                                              "x[::-1]",
                                              "x[::2]",
                                              "x[5]",
                                              "x[-1]",
                                              "x['a']",
                                              "x % 1",
                                              "x % (1, 2)",
                                              "'%s' % x",
                                              "'%.5s' % x",
                                              "'%r' % x",
                                              "'%.100000f' % 1.5",
                                              "'%.100000d' % 1",
                                              "'{}'.format(x)",
                                              "'{:.5}'.format(x)",
                                              "'{!r}'.format(x)",
                                              "'{:>400000}'.format(1)",
                                              "'{:.100000f}'.format(1.5)",
                                              "'{a}'.format_map(x)",
                                              "dict(x)",
                                              "dict(**x)",
                                              "dict(a=x)",
                                              "{x: 1}",
                                              "{'a': x}[x]",
                                              "[x, x]",
                                              "[1] * 9000",
                                              "range(*x)",
                                              "cycler(*x)",
                                              "namespace(**x)",
                                              "[x, x]|tojson(separators=(x, x))",
                                              "[1, 2, 3, 4]|tojson(separators=(x, x))",
                                              "[x, x]|tojson(indent=100000)",
                                              "[x]|map('upper')|list",
                                              "[x]|sort",
                                              "[x, x]|unique|list",
                                              "[x, x]|join(x)",
                                              "x.encode().decode()",
                                              "x is upper",
                                              "strftime_now(x)",
                                              "not x",
                                              "x if x else x",
                                              "x.items()|list",
                                              "[x]|map(attribute=x)|list",
                                              "[x]|sort(attribute=x)",
                                              "x.strip(x)",
                                              "x.replace('a', x[:100])",
                                              "x|wordwrap(1)",
                                              "x|safe ~ x",
                                              "[x]|pprint",
                                              "x|indent(x)",
                                              "{'a': x}|xmlattr",
                                              "{x: x}|urlencode",
                                              "x|string|length",
                                              "(x ~ 'a')[3]",
                                              "(x ~ '\u4e2d')[3]",
                                              "(x ~ 'a')|length",
                                              "x.find(x[:200000] ~ 'c')",
                                              "x.rfind('c' ~ x[:200000])",
                                              "(x[:200000] ~ 'c') in x"})
      limited += EndsInTime(subject, std::string(expression));
  EXPECT_GT(limited, 200);
}

// Work that grew with the square of a length, or with a precision.
TEST(JinjaBounds, NothingGrowsWithTheSquareOfALength) {
  const Json variables = {{"a", Repeat("a", 10'000'000)}, {"open", Repeat("<", 10'000'000)}};
  for (const std::string_view expression :
       {"a.find(a[:5000000] ~ 'b')", "a.rfind('b' ~ a[:5000000])", "(a[:5000000] ~ 'b') in a",
        "a.split(a[:5000000] ~ 'b')", "a.rsplit('b' ~ a[:5000000])", "a|wordwrap(1)",
        "open|striptags"}) {
    const auto parsed =
        Template::Parse("{% set y = " + std::string(expression) + " %}{{ y|length }}");
    ASSERT_TRUE(parsed) << expression;
    const double start = CpuSeconds();
    (void)parsed->Render(variables, Clock{});
    EXPECT_LT(CpuSeconds() - start, 5.0) << expression;
  }
}

TEST(JinjaBounds, TheDefaultLimitIsAboutASecond) {
  for (const std::string_view expression :
       {"x|upper", "x|wordcount", "x.count('b')", "'ac' in x"}) {
    const auto parsed =
        Template::Parse("{% set x = 'ab' * 10000000 %}{% for i in range(100000) %}{% set y = " +
                        std::string(expression) + " %}{% endfor %}");
    ASSERT_TRUE(parsed) << expression;
    const double start = CpuSeconds();
    const auto rendered = parsed->Render(Json::object(), Clock{});
    EXPECT_LT(CpuSeconds() - start, 5.0) << expression;
    ASSERT_FALSE(rendered) << expression;
    EXPECT_EQ(rendered.error().kind, ErrorKind::kLimit) << expression;
  }
}

TEST(Needle, FindsWhatStdFindFinds) {
  struct NoCalls : Runtime {
    NoCalls() : Runtime(100'000'000, 1 << 30) {}
    Expected<Value> Call(const Value&, const Arguments&) override { return Value(); }
    bool autoescape() const override { return false; }
    void KeepAlive(std::shared_ptr<Object>) override {}
    Expected<std::optional<Value>> ObjectAttribute(const Value&, std::string_view) override {
      return std::optional<Value>();
    }
    Expected<int64_t> ObjectLength(const Value&) override { return 0; }
  } runtime;
  // Every text and pattern over two letters, up to 9 and 5 long.
  const auto word = [](unsigned n) {
    std::string text;
    for (; n > 1; n /= 2) text += n % 2 ? 'a' : 'b';
    return text;
  };
  for (unsigned t = 1; t < 1024; ++t)
    for (unsigned p = 1; p < 64; ++p) {
      const std::string text = word(t), pattern = word(p);
      const auto needle = Needle::Make(runtime, pattern, text);
      ASSERT_TRUE(needle);
      ASSERT_EQ(needle->FindLast(text), text.rfind(pattern)) << text << " " << pattern;
      for (size_t from = 0; from <= text.size(); ++from)
        ASSERT_EQ(needle->Find(text, from), text.find(pattern, from)) << text << " " << pattern;
    }
}

TEST(TemplateError, ReachesTheTerminalAsOneLine) {
  const auto parsed = Template::Parse("{{ raise_exception('a\\nb\\x1b[2Jc') }}");
  ASSERT_TRUE(parsed);
  const auto rendered = parsed->Render(Json::object(), Clock{});
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().message, "a\nb\x1b[2Jc");
  const std::string sentence = rendered.error().ToError("chat_template.jinja").message;
  for (const char c : sentence) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << sentence;
  EXPECT_TRUE(sentence.starts_with("chat_template.jinja: line 1 of the chat template: a"))
      << sentence;
}

}  // namespace
}  // namespace lockstep::jinja

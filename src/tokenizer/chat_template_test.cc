// Replays tests/golden/chat (transformers' own renderings) and states the properties that goldens
// cannot.
#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "jinja/jinja.h"

namespace lockstep {
namespace {

constexpr jinja::Clock kClock = {2031, 4, 5, 6, 7, 8, 0};  // meta.json's

std::vector<std::filesystem::path> Folders() {
  std::vector<std::filesystem::path> folders = {std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                                                "tests/golden/chat"};
  const std::filesystem::path more = std::filesystem::path(LOCKSTEP_GOLDENS) / "chat";
  if (!std::string_view(LOCKSTEP_GOLDENS).empty() && std::filesystem::exists(more))
    folders.push_back(more);
  return folders;
}

Json Read(const std::filesystem::path& path) {
  const auto text = ReadTextFile(path);
  EXPECT_TRUE(text) << text.error().message;
  return Json::parse(*text);
}

template <typename Fn>
int ForEachRow(const std::filesystem::path& path, Fn fn) {
  std::ifstream file(path);
  int rows = 0;
  for (std::string line; std::getline(file, line); ++rows) fn(Json::parse(line));
  return rows;
}

// What a row expects, against what came.
void Compare(const Json& row, const char* key, const jinja::Expected<jinja::Rendered>& got) {
  const std::string id = row.value("id", "?");
  if (row.contains("error")) {
    ASSERT_FALSE(got) << id << " rendered: " << got->text;
    const Json& error = row["error"];
    EXPECT_EQ(jinja::ErrorKindName(got.error().kind), error["kind"].get<std::string>())
        << id << ": " << got.error().message << " | expected " << error["message"];
    if (error["kind"] == "raise_exception") {
      EXPECT_EQ(got.error().message, error["message"].get<std::string>()) << id;
    }
    return;
  }
  ASSERT_TRUE(got) << id << ": line " << got.error().line << ": " << got.error().message;
  if (row.contains(key)) {
    EXPECT_EQ(got->text, row[key].get<std::string>()) << id;
  }
  if (row.contains("generation_spans")) {
    std::vector<std::pair<size_t, size_t>> spans;
    for (const Json& span : row["generation_spans"]) spans.emplace_back(span[0], span[1]);
    EXPECT_EQ(got->generation_spans, spans) << id;
  }
}

TEST(ChatTemplate, RendersEveryGoldenConversationByteForByte) {
  for (const auto& folder : Folders()) {
    const Json templates = Read(folder / "templates.json");
    const Json conversations = Read(folder / "conversations.json");
    std::map<std::string, ChatTemplate> parsed;
    for (const auto& [name, entry] : templates.items()) {
      auto result = ChatTemplate::Parse(entry["text"].get<std::string>());
      ASSERT_TRUE(result) << name << ": line " << result.error().line << ": "
                          << result.error().message;
      parsed.emplace(name, *std::move(result));
    }
    const int rows = ForEachRow(folder / "cases.jsonl", [&](const Json& row) {
      const std::string name = row["template"];
      const Json& conversation = conversations[row["conv"].get<std::string>()];
      ChatTemplateInput input;
      input.messages = conversation["messages"];
      input.tools = conversation.value("tools", Json());
      input.documents = conversation.value("documents", Json());
      input.add_generation_prompt = row["add_generation_prompt"];
      input.kwargs = row.value("kwargs", Json::object());
      input.special_tokens = templates[name]["special_tokens"];
      input.continue_final_message = row.value("continue_final_message", false);
      input.clock = kClock;
      Compare(row, "rendered", parsed.at(name).Apply(input));
      if (row.contains("keep_none")) {
        input.keep_null_keys = true;
        Json expected = row["keep_none"];
        expected["id"] = row["id"].get<std::string>() + " (keep_none)";
        Compare(expected, "rendered", parsed.at(name).Apply(input));
      }
    });
    EXPECT_GT(rows, 1000) << folder;
  }
}

TEST(Jinja, AgreesWithJinja2OnEveryGoldenFeature) {
  for (const auto& folder : Folders()) {
    const Json context = Read(folder / "meta.json")["unit_context"];
    const int rows = ForEachRow(folder / "units.jsonl", [&](const Json& row) {
      const auto parsed = jinja::Template::Parse(row["template"].get<std::string>());
      Compare(row, "output",
              parsed ? parsed->Render(context, kClock)
                     : jinja::Expected<jinja::Rendered>(tl::unexpected(parsed.error())));
    });
    EXPECT_GT(rows, 100) << folder;
  }
}

// The differential cases of tools/golden/chat/features.py: Jinja2's answers to features the units
// lack.
TEST(Jinja, AgreesWithJinja2OnTheFeatureTable) {
  const auto folder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/chat";
  const Json context = Read(folder / "meta.json")["unit_context"];
  const int rows = ForEachRow(folder / "features.jsonl", [&](const Json& row) {
    const auto parsed = jinja::Template::Parse(row["template"].get<std::string>());
    SCOPED_TRACE(row["template"].get<std::string>());
    Compare(row, "output",
            parsed ? parsed->Render(context, kClock)
                   : jinja::Expected<jinja::Rendered>(tl::unexpected(parsed.error())));
  });
  EXPECT_GT(rows, 100);
}

jinja::Expected<jinja::Rendered> Render(std::string_view source,
                                        const Json& variables = Json::object(),
                                        const jinja::Limits& limits = {}) {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed) return tl::unexpected(parsed.error());
  return parsed->Render(variables, kClock, limits);
}

TEST(Jinja, ErrorsNameTheLineOfTheTemplate) {
  const auto runtime = Render("one\ntwo {{ 1 }}\n{% if true %}\n{{ missing.thing }}\n{% endif %}");
  ASSERT_FALSE(runtime);
  EXPECT_EQ(runtime.error().line, 4);
  EXPECT_EQ(runtime.error().message, "'missing' is undefined");
  const auto syntax = Render("a\nb\n{% for x in %}");
  ASSERT_FALSE(syntax);
  EXPECT_EQ(syntax.error().line, 3);
  EXPECT_EQ(syntax.error().ToError("chat_template.jinja").message,
            "chat_template.jinja: line 3 of the chat template: Expected an expression, got 'end of "
            "statement block'");
}

TEST(Jinja, EndlessWorkEndsInAnError) {
  for (const std::string_view source : {
           "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{{ 'x' * 10000000000 }}",
           "{{ [1] * 10000000000 }}",
           "{{ '%99999999999d' % 1 }}",
           "{{ '%*d' % (2000000000, 1) }}",
           "{{ '{:2000000000}'.format('x') }}",
           "{{ 'x'.center(1000000000000) }}",
           "{{ [1, [2]] | tojson(indent=1000000000) }}",
           "{{ 'a\nb' | indent(1000000000000) }}",
           "{{ 2 ** 100000 }}",
           "{% set ns = namespace(s='ab') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}"
           "{% endfor %}",
           "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}"
           "{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}"
           "{% endfor %}{{ ns.l }}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(90000) %}"
           "{% set ns.l = ns.l | map('default', ns.l) %}{% endfor %}",
           "{% for i in range(90000) %}{{ 'y' * 1000 }}{% endfor %}",
       }) {
    const auto got = Render(source);
    ASSERT_FALSE(got) << source;
    const auto kind = got.error().kind;
    EXPECT_TRUE(kind == jinja::ErrorKind::kLimit || kind == jinja::ErrorKind::kPython)
        << source << ": " << got.error().message;
  }
}

TEST(Jinja, DeepNestingIsRefusedNotFollowed) {
  for (const std::string_view open : {"(", "[", "{1:", "not ", "-", "x[", "x(", "x if ", "x|f("}) {
    std::string source = "{{ ";
    for (int i = 0; i < 100000; ++i) source += open;
    EXPECT_FALSE(Render(source)) << open;
  }
  std::string blocks, chain = "{{ x", sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) {
    blocks += "{% if x %}";
    chain += ".a";
    sum += "+1";
  }
  EXPECT_FALSE(Render(blocks));
  EXPECT_FALSE(Render(chain + " }}"));
  EXPECT_FALSE(Render(sum + " }}"));
}

TEST(Jinja, CyclesThroughNamespacesAreFreed) {  // leak checkers watch this one
  EXPECT_TRUE(
      Render("{% set ns = namespace() %}{% set ns.self = [ns] %}"
             "{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}"
             "{% for x in [1] %}{% set _ = loop.changed(loop) %}{% set ns.l = loop %}"
             "{% endfor %}"));
}

TEST(ChatTemplate, ContinuingCutsAfterTheFinalMessage) {
  const auto parsed = ChatTemplate::Parse(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}");
  ASSERT_TRUE(parsed);
  ChatTemplateInput input;
  input.messages =
      Json::parse(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a "}])");
  input.continue_final_message = true;
  const auto got = parsed->Apply(input);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->text, "<user>q</><assistant>a");
}

TEST(ChatTemplate, AWrongConversationIsAnErrorNotACrash) {
  const auto parsed = ChatTemplate::Parse("{{ messages[0].content.x.y }}");
  ASSERT_TRUE(parsed);
  for (const char* messages : {"[]", "null", "[1]", "{}", "[[]]", R"([{"role": null}])"}) {
    ChatTemplateInput input;
    input.messages = Json::parse(messages);
    EXPECT_FALSE(parsed->Apply(input)) << messages;
  }
}

}  // namespace
}  // namespace lockstep

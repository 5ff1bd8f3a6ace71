#include "tokenizer/regex.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// The non-empty matches as text, joined by '|'.
std::string Matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex) return "error: " + regex.error().message;
  std::vector<Regex::Match> matches;
  if (const auto status = regex->FindAll(text, matches); !status)
    return "error: " + status.error().message;
  std::string joined;
  for (const auto& [begin, end] : matches) {
    if (begin == end) continue;
    joined.append(joined.empty() ? "" : "|").append(text.substr(begin, end - begin));
  }
  return joined;
}

std::string CompileError(std::string_view pattern) {
  const auto regex = Regex::Compile(pattern);
  return regex ? "" : regex.error().message;
}

struct Case {
  std::string_view pattern, text, matches;
};

// What Oniguruma answers, through tokenizers.pre_tokenizers.Split.
TEST(Regex, MatchesAsOniguruma) {
  constexpr Case kCases[] = {
      {"a|ab", "ab", "a"},  // the first alternative, not the longest
      {"(?:a|ab)c", "abc", "abc"},
      {"a{2}", "aaaaa", "aa|aa"},
      {"a{2}?b", "aab", "aab"},
      {"a{1,2}+b", "aaaab", "aaaab"},  // a + after an interval repeats it
      {"a++a", "aaa", ""},
      {"a+?b", "aab", "aab"},
      {"a{,2}", "aaa", "aa|a"},
      {"x{y}", "x{y}", "x{y}"},
      {"(?i:'s|'t)", "'S 'T '\u017F", "'S|'T|'\u017F"},
      {"(?i:k)", "kK\u212A", "k|K|\u212A"},
      {"(?i)\\p{Lu}", "aA", "A"},  // a lone property does not fold
      {"(?i)[^b]", "bBc", "c"},
      {"\\s+(?!\\S)", "a   b", "  "},
      {"\\s", "\x1C\u0085\u00A0\u180E\u200B\u3000", "\u0085|\u00A0|\u3000"},
      {"\\p{^L}+", "a1b", "1"},
      {"[a-f&&[^bc]]+", "abcdef", "a|def"},
      {"[a-c[x-z]]+", "axdy", "ax|y"},
      {"[]a]+", "]a", "]a"},
      {"[\\w-]+", "a-b c", "a-b|c"},
      {"[[:alpha:]]+", "aé1", "aé"},
      {"\\h+", "0fg", "0f"},  // hexadecimal digits, not blanks
      {".", "a\nb", "a|b"},
      {"(?m:.)+", "a\nb", "a\nb"},
      {"^b", "a\nb", "b"},  // anchors are of lines
      {"a$", "a\nb", "a"},
      {"\\Ab", "a\nb", ""},
      {"\\bb", "ab b", "b"},
      {"(?<=a)b", "ab b", "b"},
      {"(?<!a)b", "ab b", "b"},
      {"(?<=a|bc)d", "ad bcd d", "d|d"},
      {"(?>a+)a", "aaa", ""},
      {"(a*)*b", "aab", "aab"},
      {"(?x: a b # comment\n c)", "abc", "abc"},
      {"a(?#note)b", "ab", "ab"},
      {"\\x{1F600}|\\u00e9", "\U0001F600é", "\U0001F600|é"},
      {"\\p{Han}+", "日本x", "日本"},
      {"\\p{L}", "\U000105C0", "\U000105C0"},  // Unicode 16
      {"a(?i)b|c", "aB", "aB"},
      {"(?=b)", "ab", ""},
  };
  for (const auto& [pattern, text, matches] : kCases)
    EXPECT_EQ(Matches(pattern, text), matches) << pattern;
}

TEST(Regex, AnEmptyMatchDirectlyAfterAMatchIsSkipped) {
  const auto regex = Regex::Compile("a*");
  ASSERT_TRUE(regex);
  std::vector<Regex::Match> matches;
  ASSERT_TRUE(regex->FindAll("aab", matches));
  ASSERT_EQ(matches.size(), 2u);  // "aa", then nothing at the end; nothing between "aa" and "b"
  EXPECT_EQ(matches[1].begin, 3u);
}

TEST(Regex, RefusesWhatItCannotDoAndSaysWhat) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"(", "never closes"},
      {")", "unmatched )"},
      {"[a", "never closes"},
      {"*", "nothing before it"},
      {"a\\", "\\ at its end"},
      {"\\p{Nope}", "unknown property"},
      {"\\p{rust_word}", "unknown property"},
      {"(a)\\1", "back-references"},
      {"a{3,2}", "above its maximum"},
      {"a{999999}", "above 100000"},
      {"(?<=a*)b", "variable width"},
      {"(?i:ss)", "one other character"},
      {"(?i:[\u00DF])", "several"},
      {"[z-a]", "empty range"},
      {"\\x{110000}", "above U+10FFFF"},
      {"\xFF", "not UTF-8"},
      {"(?z:a)", "unknown option"},
      {"((a{1000}){1000}){1000}", "too large"},
  };
  for (const auto& [pattern, part] : kCases) {
    EXPECT_NE(CompileError(pattern).find(part), std::string::npos)
        << pattern << ": " << CompileError(pattern);
  }
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "(";
  EXPECT_NE(CompileError(deep).find("deeper than"), std::string::npos);
  EXPECT_NE(CompileError(std::string(5000, '[')).find("deeper than"), std::string::npos);
}

TEST(Regex, CatastrophicBacktrackingEndsInAnError) {
  const std::string text(5000, 'a');
  for (const char* pattern : {"(a+)+b", "(a|a)*b", "(a*)*b", "(?:a?){50}a{50}b", "(a|aa)+$b"}) {
    EXPECT_NE(Matches(pattern, text).find("backtracks too much"), std::string::npos) << pattern;
  }
}

TEST(Regex, LongWordsNeedNoStack) {
  const std::string letters(1'000'000, 'a');
  EXPECT_EQ(Matches("(?:\\p{L}|\\p{N})+", letters), letters);
  EXPECT_EQ(Matches("(?:a(?=a|$))+", letters), letters);
  // Capitals fail the first alternative after giving back all of them, once.
  const std::string capitals(50'000, 'A');
  EXPECT_EQ(Matches("[\\p{Lu}]*[\\p{Ll}]+|[\\p{Lu}]+[\\p{Ll}]*", capitals), capitals);
  EXPECT_EQ(Matches("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", std::string(50'000, ' ') + "x").size(),
            50'001u);
}

TEST(Regex, LiteralsAreNotPatterns) {
  std::vector<Regex::Match> matches;
  ASSERT_TRUE(Regex::Literal("a.").FindAll("ab a. a.", matches));
  EXPECT_EQ(matches.size(), 2u);
  matches.clear();
  ASSERT_TRUE(Regex::Literal("").FindAll("ab", matches));
  EXPECT_EQ(matches.size(), 3u);
}

}  // namespace
}  // namespace lockstep

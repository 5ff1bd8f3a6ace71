#include "base/quoted.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace lockstep {
namespace {

TEST(Quoted, ControlCharactersAndBadBytesAreEscaped) {
  EXPECT_EQ(Quoted("a\x1b[2J\nb\xff"), "\"a\\x1b[2J\\x0ab\\xff\"");
  EXPECT_EQ(Quoted("größe"), "\"größe\"");
}

TEST(Quoted, ALongNameIsCutAtACodePoint) {
  std::string name(95, 'x');
  for (int i = 0; i < 10; ++i) name += "€";
  const std::string quoted = Quoted(name);
  EXPECT_FALSE(FindUtf8Fault(quoted));
  EXPECT_EQ(quoted, "\"" + std::string(95, 'x') + "\"... (125 bytes)");
}

TEST(Quoted, AListNamesAFewAndCountsTheRest) {
  const std::vector<std::string> names = {"a", "b\n", "c"};
  EXPECT_EQ(QuotedList(names, 2), "\"a\", \"b\\x0a\" and 1 more");
  EXPECT_EQ(QuotedList(names, 3), "\"a\", \"b\\x0a\", \"c\"");
}

TEST(Error, AMessageIsOneLineOfBoundedLength) {
  std::string text;
  while (text.size() < 5000) text += "€\x1b\xff";
  const Error error = InputError("file: {}", text).value();
  EXPECT_LE(error.message.size(), kMaxMessage + 3);
  EXPECT_FALSE(FindUtf8Fault(error.message));
  EXPECT_EQ(error.message.find('\x1b'), std::string::npos);
  EXPECT_TRUE(error.message.ends_with("..."));
  const Error outer = Error(error).In(std::string(3000, 'p'));
  EXPECT_LE(outer.message.size(), kMaxMessage + 3);
}

TEST(Error, AShortMessageStaysAsItIs) {
  EXPECT_EQ(InputError("{}: größer als {}", "x", 3).value().message, "x: größer als 3");
}

TEST(Json, ADuplicateKeyIsQuoted) {
  const auto json = ParseJson("{\"a\\u001b\": 1, \"a\\u001b\": 2}", "x.json");
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().message,
            "x.json: not valid JSON: the key \"a\\x1b\" is given twice in one object");
}

TEST(Json, WhatWasReadLastIsQuotedAndShort) {
  const auto json = ParseJson("{\"a\": \"" + std::string(100000, 'y') + "\xff\"}", "x.json");
  ASSERT_FALSE(json);
  EXPECT_LT(json.error().message.size(), 300u) << json.error().message;
  EXPECT_NE(json.error().message.find("last read: ...\"y"), std::string::npos)
      << json.error().message;
  EXPECT_NE(json.error().message.find("\\xff"), std::string::npos) << json.error().message;
}

}  // namespace
}  // namespace lockstep

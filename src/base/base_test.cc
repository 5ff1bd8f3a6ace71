#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/dtype.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/nearest.h"
#include "base/utf8.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(Half, EveryValueSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float16 half{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(wide))));
    } else {
      ASSERT_EQ(ToFloat16(wide).bits, half.bits);
    }
  }
}

TEST(Half, RoundsToNearestEvenAndOverflowsToInfinity) {
  EXPECT_EQ(ToFloat(ToFloat16(2049.0f)), 2048);  // a tie between 2048 and 2050
  EXPECT_EQ(ToFloat(ToFloat16(2051.0f)), 2052);
  EXPECT_EQ(ToFloat(ToFloat16(65519.0f)), 65504);
  EXPECT_TRUE(std::isinf(ToFloat(ToFloat16(65520.0f))));
  EXPECT_EQ(ToFloat(ToFloat16(0x1p-25f)), 0);  // a tie between 0 and the smallest subnormal
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(ToFloat(ToBFloat16(257.0f)), 256);
  EXPECT_EQ(ToFloat(ToBFloat16(259.0f)), 260);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Json, RefusesWhatParsersLetPass) {
  EXPECT_TRUE(ParseJson(R"({"a": [1, 2.5, "x", null]})", "f"));
  EXPECT_FALSE(ParseJson(R"({"a": 1, "a": 2})", "f"));  // twice
  EXPECT_FALSE(ParseJson(R"({"a": 1} x)", "f"));        // something after
  EXPECT_FALSE(ParseJson("{\"a\": \"\xff\"}", "f"));    // not UTF-8
  EXPECT_FALSE(ParseJson("", "f"));
  EXPECT_FALSE(ParseJson(std::string(100000, '['), "f"));  // too deep, and no crash
  EXPECT_TRUE(ParseJson(std::string(500, '[') + std::string(500, ']'), "f"));
}

TEST(Json, SaysWhere) {
  const auto broken = ParseJson("{\n  \"a\": ,\n}", "config.json");
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().message.starts_with("config.json: ")) << broken.error().message;
  EXPECT_NE(broken.error().message.find("line 2"), std::string::npos) << broken.error().message;
}

TEST(Json, KeepsTheOrderOfKeys) {
  EXPECT_EQ(ParseJson(R"({"z":1,"a":2})", "f")->dump(), R"({"z":1,"a":2})");
}

TEST(Utf8, FindsTheFirstFaultAndItsLength) {
  EXPECT_FALSE(FindUtf8Fault("plain, \xd8\xb3\xd9\x84\xd8\xa7\xd9\x85, \xf0\x9f\x98\x80"));
  const auto overlong = FindUtf8Fault("ab\xc0\x80");
  ASSERT_TRUE(overlong);
  EXPECT_EQ(overlong->valid_up_to, 2u);
  EXPECT_EQ(overlong->error_length, 1);
  const auto surrogate = FindUtf8Fault("\xed\xa0\x80");
  ASSERT_TRUE(surrogate);
  EXPECT_EQ(surrogate->error_length, 1);
  const auto cut = FindUtf8Fault("12345678\xf0\x9f\x98");
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->valid_up_to, 8u);
  EXPECT_FALSE(cut->error_length);
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x800 ? 1 : 37) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    AppendUtf8(c, text);
    ASSERT_FALSE(FindUtf8Fault(text));
    size_t i = 0;
    ASSERT_EQ(NextCodePoint(text, i), c);
    ASSERT_EQ(i, text.size());
  }
}

TEST(Nearest, SuggestsATypoAndNothingFar) {
  const std::vector<std::string> known{"llama", "gemma2", "gpt2"};
  EXPECT_EQ(NearestName("lama", known), "llama");
  EXPECT_EQ(NearestName("gemma", known), "gemma2");
  EXPECT_EQ(NearestName("resnet50", known), "");
}

class Files : public testing::Test {
 protected:
  Files() { fs::create_directories(folder); }
  ~Files() override { fs::remove_all(folder); }
  const fs::path folder =
      fs::temp_directory_path() / ("lockstep_base_test." + std::to_string(getpid()));
};

TEST_F(Files, WritingReplacesWholeFilesAndLeavesNothingElse) {
  const fs::path path = folder / "a b.txt";
  ASSERT_TRUE(WriteFileAtomically(path, "old"));
  ASSERT_TRUE(WriteFileAtomically(path, "new and longer"));
  EXPECT_EQ(*ReadTextFile(path), "new and longer");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(Files, AFailedWriteKeepsTheOldFile) {
  const fs::path path = folder / "taken";
  fs::create_directory(path);
  fs::create_directory(path / "inside");
  EXPECT_FALSE(WriteFileAtomically(path, "text"));
  EXPECT_TRUE(fs::is_directory(path / "inside"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(Files, OnlyRegularFilesAreOpened) {
  EXPECT_FALSE(MappedFile::Open(folder));
  EXPECT_FALSE(MappedFile::Open(folder / "absent"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::Open(folder / "pipe"));  // and does not wait for a writer
  ASSERT_TRUE(WriteFileAtomically(folder / "empty", ""));
  const auto empty = MappedFile::Open(folder / "empty");
  ASSERT_TRUE(empty);
  EXPECT_TRUE((*empty)->bytes().empty());
}

TEST_F(Files, AFileAboveTheLimitIsNotRead) {
  ASSERT_TRUE(WriteFileAtomically(folder / "file", "12345"));
  EXPECT_TRUE(ReadTextFile(folder / "file", 5));
  EXPECT_FALSE(ReadTextFile(folder / "file", 4));
}

}  // namespace
}  // namespace lockstep

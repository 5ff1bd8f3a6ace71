#include "formats/gguf_write.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

GgufValues SomeValues() {
  GgufValues values;
  values.SetString("general.architecture", "test");
  values.SetInteger("test.count", 7);
  values.SetNumber("test.eps", 1e-5);
  values.SetBool("test.flag", true);
  values.SetIntegers("test.list", std::vector<int32_t>{1, -2, 3});
  values.SetBools("test.flags", {true, false});
  values.SetStrings("test.words", std::vector<std::string>{"a", "", "längeres"});
  return values;
}

std::vector<StreamedTensor> SomeTensors() {
  return {{.name = "b", .type = FindTensorType("F32"), .shape = {3, 5}},
          {.name = "a", .type = FindTensorType("Q8_0"), .shape = {2, 2, 32}},
          {.name = "v", .type = FindTensorType("F16"), .shape = {7}}};
}

// Every byte tells which tensor and which of its rows it is of.
Status FillWithIndex(std::span<const StreamedTensor> tensors, size_t tensor, int64_t first,
                     int64_t count, std::byte* out) {
  const int64_t row = tensors[tensor].row_bytes();
  for (int64_t i = 0; i < count * row; ++i)
    out[i] = static_cast<std::byte>(16 * tensor + static_cast<size_t>(first + i / row));
  return {};
}

FillRows Filler(const std::vector<StreamedTensor>& tensors) {
  return [&tensors](size_t tensor, int64_t first, int64_t count, std::byte* out) {
    return FillWithIndex(tensors, tensor, first, count, out);
  };
}

std::string Contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GgufWrite, TheReaderFindsEveryValueAndTensorAgain) {
  const TestFolder folder;
  const auto tensors = SomeTensors();
  const fs::path path = folder.path() / "x.gguf";
  ASSERT_TRUE(WriteGguf(path, SomeValues(), tensors, Filler(tensors)));
  const std::string bytes = Contents(path);
  const auto file = ParseGguf(AsBytes(bytes), "x.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version, 3u);
  EXPECT_EQ(file->metadata.Find("test.count")->AsInt(), 7);
  EXPECT_FLOAT_EQ(static_cast<float>(*file->metadata.Find("test.eps")->AsDouble()), 1e-5f);
  EXPECT_EQ(file->metadata.Find("test.flag")->AsBool(), true);
  EXPECT_EQ(file->metadata.Find("test.list")->AsInts(), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(file->metadata.Find("test.flags")->AsInts(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(file->metadata.Find("test.words")->AsStrings(),
            (std::vector<std::string_view>{"a", "", "längeres"}));
  ASSERT_EQ(file->tensors.size(), 3u);
  for (const TensorInfo& found : file->tensors) {
    const auto wanted = std::find_if(tensors.begin(), tensors.end(),
                                     [&](const StreamedTensor& t) { return t.name == found.name; });
    ASSERT_NE(wanted, tensors.end());
    EXPECT_EQ(found.type, wanted->type);
    EXPECT_EQ(found.shape, wanted->shape);
    std::vector<std::byte> expected(static_cast<size_t>(wanted->rows() * wanted->row_bytes()));
    ASSERT_TRUE(FillWithIndex(tensors, static_cast<size_t>(wanted - tensors.begin()), 0,
                              wanted->rows(), expected.data()));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.data.begin(), found.data.end()));
  }
}

TEST(GgufWrite, TheSameArgumentsGiveTheSameBytes) {
  const TestFolder folder;
  const auto tensors = SomeTensors();
  for (const char* name : {"one.gguf", "two.gguf"})
    ASSERT_TRUE(WriteGguf(folder.path() / name, SomeValues(), tensors, Filler(tensors)));
  EXPECT_EQ(Contents(folder.path() / "one.gguf"), Contents(folder.path() / "two.gguf"));
}

TEST(GgufWrite, AFailureLeavesTheOldFileAndNothingElse) {
  const TestFolder folder;
  const fs::path path = folder.path() / "x.gguf";
  std::ofstream(path) << "old";
  const auto tensors = SomeTensors();
  const auto written = WriteGguf(path, SomeValues(), tensors,
                                 [&](size_t tensor, int64_t first, int64_t count, std::byte* out) {
                                   if (tensor == 1) return Status(InputError("no such row"));
                                   return FillWithIndex(tensors, tensor, first, count, out);
                                 });
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "no such row");
  EXPECT_EQ(Contents(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(GgufWrite, ProgressIsToldAndCanStop) {
  const TestFolder folder;
  const auto tensors = SomeTensors();
  std::vector<uint64_t> seen;
  ASSERT_TRUE(WriteGguf(folder.path() / "x.gguf", SomeValues(), tensors, Filler(tensors),
                        [&](uint64_t done, uint64_t total) {
                          EXPECT_LE(done, total);
                          seen.push_back(done);
                          return true;
                        }));
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 60u + 136u + 14u);
  const auto stopped = WriteGguf(folder.path() / "y.gguf", SomeValues(), tensors, Filler(tensors),
                                 [](uint64_t, uint64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kInterrupted);
  EXPECT_FALSE(fs::exists(folder.path() / "y.gguf"));
}

TEST(GgufWrite, WhatTheFormatCannotHoldIsRefusedByName) {
  const TestFolder folder;
  const auto refused = [&](const StreamedTensor& tensor) {
    const std::vector<StreamedTensor> tensors = {tensor};
    const auto written =
        WriteGguf(folder.path() / "x.gguf", SomeValues(), tensors, Filler(tensors));
    return written ? std::string() : written.error().message;
  };
  const TensorType* f32 = FindTensorType("F32");
  EXPECT_NE(refused({.name = std::string(64, 'n'), .type = f32, .shape = {1}}).find("63"),
            std::string::npos);
  EXPECT_NE(refused({.name = "x", .type = f32, .shape = {1, 1, 1, 1, 1}}).find("5 dimensions"),
            std::string::npos);
  EXPECT_NE(refused({.name = "x", .type = FindTensorType("U8"), .shape = {1}}).find("U8"),
            std::string::npos);
  EXPECT_NE(refused({.name = "x", .type = FindTensorType("Q4_0"), .shape = {2, 33}}).find("33"),
            std::string::npos);
}

TEST(StreamSafetensors, GivesTheBytesOfTheWriterThatHoldsThem) {
  const TestFolder folder;
  std::vector<StreamedTensor> tensors = {
      {.name = "b", .type = FindTensorType("F32"), .shape = {3, 5}},
      {.name = "a", .type = FindTensorType("BF16"), .shape = {2, 2, 32}},
      {.name = "s", .type = FindTensorType("F32"), .shape = {}}};
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorToWrite> whole;
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto& data =
        bytes.emplace_back(static_cast<size_t>(tensors[i].rows() * tensors[i].row_bytes()));
    ASSERT_TRUE(FillWithIndex(tensors, i, 0, tensors[i].rows(), data.data()));
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    whole.push_back({tensors[i].name, tensors[i].type, tensors[i].shape, bytes[i]});
  ASSERT_TRUE(WriteSafetensors(folder.path() / "whole", whole, {{"format", "pt"}}));
  ASSERT_TRUE(StreamSafetensors(folder.path() / "streamed", tensors, Filler(tensors), {},
                                {{"format", "pt"}}));
  EXPECT_EQ(Contents(folder.path() / "whole"), Contents(folder.path() / "streamed"));
}

}  // namespace
}  // namespace lockstep

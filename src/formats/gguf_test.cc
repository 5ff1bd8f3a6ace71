#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <limits>

#include "formats/checkpoint.h"
#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf";

Checkpoint Open(std::string_view name) {
  auto checkpoint = OpenCheckpoint(kGolden / name);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint ? *std::move(checkpoint) : Checkpoint{};
}

std::vector<float> Values(const TensorInfo& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  tensor.type->dequantize(tensor.data.data(), tensor.elements(), out.data());
  return out;
}

const GgufValue& At(const Checkpoint& checkpoint, std::string_view key) {
  static const GgufValue kNone;
  const GgufValue* value = checkpoint.gguf.Find(key);
  EXPECT_NE(value, nullptr) << key;
  return value == nullptr ? kNone : *value;
}

TEST(GgufMetadata, EveryScalarTypeReadsBack) {
  const Checkpoint file = Open("tiny.gguf");
  EXPECT_EQ(file.kind, Checkpoint::Kind::kGguf);
  EXPECT_TRUE(file.config.is_null());
  EXPECT_EQ(At(file, "general.architecture").AsString(), "tiny");
  EXPECT_EQ(At(file, "v.u8").AsInt(), 255);
  EXPECT_EQ(At(file, "v.i8").AsInt(), -128);
  EXPECT_EQ(At(file, "v.u16").AsInt(), 65535);
  EXPECT_EQ(At(file, "v.i16").AsInt(), -32768);
  EXPECT_EQ(At(file, "v.u32").AsInt(), 4294967295);
  EXPECT_EQ(At(file, "v.i32").AsInt(), -2147483648);
  EXPECT_EQ(At(file, "v.i64").AsInt(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(At(file, "v.f32").AsDouble(), double{1e-5f});
  EXPECT_EQ(At(file, "v.f64").AsDouble(), 0.1);
  EXPECT_EQ(At(file, "v.bool").AsBool(), true);
  EXPECT_EQ(At(file, "v.string").AsString(), "grüß 世界");
}

TEST(GgufMetadata, AValueOfAnotherTypeIsAbsentNotConverted) {
  const Checkpoint file = Open("tiny.gguf");
  EXPECT_EQ(At(file, "v.u64").AsInt(), std::nullopt);  // 2^64 - 1 does not fit
  EXPECT_EQ(At(file, "v.u64").AsDouble(), 0x1p64);
  EXPECT_EQ(At(file, "v.f32").AsInt(), std::nullopt);
  EXPECT_EQ(At(file, "v.string").AsInt(), std::nullopt);
  EXPECT_EQ(At(file, "v.u8").AsBool(), std::nullopt);
  EXPECT_EQ(At(file, "v.bool").AsInt(), 1);
  EXPECT_EQ(At(file, "v.bool").AsDouble(), std::nullopt);
  EXPECT_EQ(At(file, "a.i32").AsInt(), std::nullopt);
  EXPECT_EQ(At(file, "a.i32").AsStrings(), std::nullopt);
  EXPECT_EQ(At(file, "a.string").AsInts(), std::nullopt);
  EXPECT_EQ(At(file, "v.i32").AsInts(), std::nullopt);
  EXPECT_EQ(file.gguf.Find("no.such.key"), nullptr);
}

TEST(GgufMetadata, ArraysReadBack) {
  const Checkpoint file = Open("tiny.gguf");
  EXPECT_EQ(At(file, "a.i32").AsInts(), (std::vector<int64_t>{-1, 0, 7}));
  EXPECT_EQ(At(file, "a.i32").AsDoubles(), (std::vector<double>{-1, 0, 7}));
  EXPECT_EQ(At(file, "a.f32").AsDoubles(), (std::vector<double>{0.5, -1.25}));
  EXPECT_EQ(At(file, "a.bool").AsInts(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(At(file, "a.string").AsStrings(), (std::vector<std::string_view>{"", "a", "▁the"}));
}

TEST(GgufMetadata, JsonIsReadable) {
  const Checkpoint file = Open("tiny.gguf");
  EXPECT_EQ(At(file, "v.f32").ToJson().dump(), "1e-05");
  EXPECT_EQ(At(file, "v.u64").ToJson().dump(), "18446744073709551615");
  EXPECT_EQ(At(file, "v.bool").ToJson().dump(), "true");
  EXPECT_EQ(At(file, "a.string").ToJson().dump(), R"(["","a","▁the"])");
  EXPECT_EQ(At(file, "a.long").ToJson(), "100 × i32");
  EXPECT_EQ(At(file, "a.long").ToJson(100).size(), 100u);
  const std::string bad = "a\xff\xe4\xb8";
  const GgufValue value{.type = GgufType::kString, .bytes = AsBytes(bad)};
  EXPECT_EQ(value.ToJson().dump(), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  const float infinity = std::numeric_limits<float>::infinity();
  const GgufValue not_a_json_number{.type = GgufType::kF32,
                                    .bytes = std::as_bytes(std::span(&infinity, 1))};
  EXPECT_EQ(not_a_json_number.ToJson().dump(), "null");
}

void CheckTinyTensors(const Checkpoint& file) {
  ASSERT_EQ(file.tensors.size(), 7u);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : file.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"bf16", "f16", "f32", "f64", "i32", "q4_0", "q8_0"}));
  EXPECT_EQ(file.Find("f32")->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.Find("f16")->shape, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(Values(*file.Find("f32")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Values(*file.Find("f16")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Values(*file.Find("f64")), (std::vector<float>{0.1f, -2}));
  EXPECT_EQ(Values(*file.Find("i32")), (std::vector<float>{-1, 0, 2147483648.0f}));
  EXPECT_EQ(file.Find("q4_0")->type->name, "Q4_0");
  EXPECT_EQ(file.Find("q4_0")->data.size(), 2 * 18u);
  EXPECT_EQ(file.Find("missing"), nullptr);
  const std::vector<float> bf16 = Values(*file.Find("bf16"));  // k / 8 - 4, exact in bfloat16
  for (size_t i = 0; i < bf16.size(); ++i) EXPECT_EQ(bf16[i], static_cast<float>(i) / 8 - 4);
}

TEST(Gguf, ShapesAreOutermostFirstAndBytesAreBound) { CheckTinyTensors(Open("tiny.gguf")); }

TEST(Gguf, GeneralAlignmentMovesTheData) {
  const Checkpoint file = Open("tiny-aligned.gguf");
  CheckTinyTensors(file);
  for (const TensorInfo& tensor : file.tensors)
    EXPECT_EQ((tensor.data.data() - file.files[0]->bytes().data()) % 256, 0) << tensor.name;
}

TEST(Gguf, ASplitIsJoinedFromAnyOfItsParts) {
  for (const std::string_view part :
       {"tiny-split-00001-of-00002.gguf", "tiny-split-00002-of-00002.gguf"}) {
    const Checkpoint file = Open(part);
    CheckTinyTensors(file);
    EXPECT_EQ(file.files.size(), 2u);
    EXPECT_EQ(At(file, "v.string").AsString(), "only in the first part");
    for (const TensorInfo& tensor : file.tensors) {
      const auto bytes = file.files.at(tensor.file)->bytes();
      EXPECT_GE(tensor.data.data(), bytes.data()) << tensor.name;
      EXPECT_LE(tensor.data.data() + tensor.data.size(), bytes.data() + bytes.size());
    }
  }
}

TEST(Gguf, ASplitWithoutAPartNamesThePart) {
  const TestFolder folder;
  fs::copy_file(kGolden / "tiny-split-00001-of-00002.gguf",
                folder.path() / "x-00001-of-00002.gguf");
  ExpectError(OpenCheckpoint(folder.path() / "x-00001-of-00002.gguf"),
              {"x-00001-of-00002.gguf", "one of 2 parts", "\"x-00002-of-00002.gguf\" is missing"});
  // The first part again in place of the second.
  fs::copy_file(kGolden / "tiny-split-00001-of-00002.gguf",
                folder.path() / "x-00002-of-00002.gguf");
  ExpectError(OpenCheckpoint(folder.path() / "x-00001-of-00002.gguf"),
              {"says it is part 1 of 2, expected part 2 of 2"});
  fs::copy_file(kGolden / "tiny-split-00001-of-00002.gguf", folder.path() / "renamed.gguf");
  ExpectError(OpenCheckpoint(folder.path() / "renamed.gguf"),
              {"should end in \"-00001-of-00002.gguf\""});
}

TEST(Gguf, ThePlaceIsByContentNotByExtension) {
  const TestFolder folder;
  fs::copy_file(kGolden / "tiny.gguf", folder.path() / "model.bin");
  EXPECT_TRUE(OpenCheckpoint(folder.path() / "model.bin"));
  ExpectError(OpenCheckpoint(folder.Write("x.gguf", "hello\nworld")),
              {"x.gguf", "expected a Hugging Face folder or a GGUF file", "begins \"hello\""});
}

TEST(Gguf, VersionTwoHasTheSameLayout) {
  auto text = ReadTextFile(kGolden / "tiny.gguf");
  ASSERT_TRUE(text);
  (*text)[4] = 2;
  const auto file = ParseGguf(AsBytes(*text), "v2");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version, 2u);
  EXPECT_EQ(file->tensors.size(), 7u);
}

TEST(Gguf, AScalarAndAnEmptyTensorAreFine) {
  const std::string bytes = Bytes()
                                .Raw("GGUF")
                                .U32(3)
                                .U64(2)
                                .U64(0)
                                .Text("scalar")
                                .U32(0)
                                .U32(0)
                                .U64(0)
                                .Text("empty")
                                .U32(2)
                                .U64(32)
                                .U64(0)
                                .U32(8)
                                .U64(32)
                                .PadTo(32)
                                .Zeros(32)
                                .text();
  const auto file = ParseGguf(AsBytes(bytes), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors[0].name, "empty");
  EXPECT_EQ(file->tensors[0].elements(), 0);
  EXPECT_TRUE(file->tensors[0].data.empty());
  EXPECT_EQ(file->tensors[1].elements(), 1);
  EXPECT_EQ(file->tensors[1].data.size(), 4u);
}

}  // namespace
}  // namespace lockstep

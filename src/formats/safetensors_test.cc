#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  auto text = ReadTextFile(path);
  EXPECT_TRUE(text) << text.error().message;
  return text ? *text : "";
}

TEST(Safetensors, EveryPlainTypeIsListed) {
  std::string header = "{";
  size_t position = 0;
  for (const TensorType& type : TensorTypes()) {
    if (!type.plain()) continue;
    const size_t size = static_cast<size_t>(type.block_bytes) * 6;
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[2,3],"data_offsets":[{},{}]}})",
                    header.size() > 1 ? "," : "", type.name, type.name, position, position + size);
    position += size;
  }
  const std::string bytes = Safetensors(header + "}", position);
  const auto file = ParseSafetensors(AsBytes(bytes), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors.size(), 16u);
  for (const TensorInfo& tensor : file->tensors) {
    EXPECT_EQ(tensor.type->name, tensor.name);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(tensor.data.size(), static_cast<size_t>(tensor.type->block_bytes) * 6);
  }
  EXPECT_EQ(file->Find("F64")->elements(), 6);
  EXPECT_EQ(file->Find("F65"), nullptr);
}

TEST(Safetensors, ScalarsEmptyTensorsAndMetadataAreRead) {
  const std::string bytes =
      Safetensors(R"({"__metadata__":{"format":"pt","note":"a\u00df"},)"
                  R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                  R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}   )",
                  4);
  const auto file = ParseSafetensors(AsBytes(bytes), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata.at("format"), "pt");
  EXPECT_EQ(file->metadata.at("note"), "aß");
  EXPECT_EQ(file->Find("s")->elements(), 1);
  EXPECT_EQ(file->Find("e")->elements(), 0);
}

TEST(Safetensors, AFileWithoutTensorsIsFine) {
  const std::string bytes = Safetensors("{}", 0);
  const auto file = ParseSafetensors(AsBytes(bytes), "x");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors.empty());
}

// The writer of the safetensors crate made the golden; ours must put the same tensors and metadata
// into the same bytes.
TEST(SafetensorsWriter, WritesTheBytesThatTheFormatsOwnWriterWrites) {
  const TestFolder folder;
  size_t files = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf")) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto golden = OpenSafetensors(entry.path());
    ASSERT_TRUE(golden) << golden.error().message;
    std::vector<TensorToWrite> tensors;
    for (const TensorInfo& tensor : golden->tensors)
      tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.data});
    const fs::path copy = folder.path() / "copy.safetensors";
    const Status written = WriteSafetensors(copy, tensors, golden->metadata);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(Read(copy), Read(entry.path())) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 6u);
}

TEST(SafetensorsWriter, TheOrderGivenDoesNotMatter) {
  const TestFolder folder;
  const std::string bytes(24, 'x');
  const std::vector<int64_t> shape = {3};
  const TensorToWrite a{"a \"quoted\" ß", FindTensorType("F32"), shape, AsBytes(bytes).first(12)};
  const TensorToWrite b{"b", FindTensorType("U8"), shape, AsBytes(bytes).first(3)};
  const TensorToWrite c{"c", FindTensorType("I64"), shape, AsBytes(bytes).first(24)};
  const std::vector<TensorToWrite> one = {a, b, c}, other = {c, b, a};
  ASSERT_TRUE(WriteSafetensors(folder.path() / "one", one, {{"k", "v"}}));
  ASSERT_TRUE(WriteSafetensors(folder.path() / "other", other, {{"k", "v"}}));
  EXPECT_EQ(Read(folder.path() / "one"), Read(folder.path() / "other"));
  const auto file = OpenSafetensors(folder.path() / "one");
  ASSERT_TRUE(file) << file.error().message;
  for (const TensorInfo& tensor : file->tensors) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.data.data());
    EXPECT_EQ(address % static_cast<uintptr_t>(tensor.type->block_bytes), 0u) << tensor.name;
  }
  EXPECT_NE(file->Find("a \"quoted\" ß"), nullptr);
}

TEST(SafetensorsWriter, RefusesWhatNoReaderWouldTake) {
  const TestFolder folder;
  const fs::path path = folder.path() / "x.safetensors";
  const std::string bytes(18, 'x');
  const std::vector<int64_t> four = {4}, block = {32};
  const TensorType* u8 = FindTensorType("U8");
  const TensorToWrite good{"t", u8, four, AsBytes(bytes).first(4)};
  const TensorToWrite shorter{"t", u8, four, AsBytes(bytes).first(3)};
  const TensorToWrite quantized{"t", FindTensorType("Q4_0"), block, AsBytes(bytes)};
  const TensorToWrite unnamed{"\xff", u8, four, AsBytes(bytes).first(4)};
  const TensorToWrite reserved{"__metadata__", u8, four, AsBytes(bytes).first(4)};
  const auto write = [&](std::vector<TensorToWrite> tensors) {
    return WriteSafetensors(path, tensors);
  };
  ExpectError(write({good, good}), {"\"t\" is given twice"});
  ExpectError(write({shorter}), {"needs 4 bytes, found 3"});
  ExpectError(write({quantized}), {"Q4_0", "no name for"});
  ExpectError(write({unnamed}), {"cannot be named \"\\xff\""});
  ExpectError(write({reserved}), {"cannot be named \"__metadata__\""});
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace lockstep

#include "formats/hf_folder.h"

#include <gtest/gtest.h>

#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string OneTensor(std::string_view name) {
  return Safetensors(
      fmt::format(R"({{"{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}})", name), 4);
}

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 134\n";
constexpr std::string_view kPage = "\n<!DOCTYPE html>\n<html><body>Not found</body></html>";

TEST(HfFolder, ASingleFileIsRead) {
  const TestFolder folder;
  folder.Write("config.json", R"({"model_type":"llama"})");
  folder.Write("model.safetensors", OneTensor("a"));
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->kind, Checkpoint::Kind::kHuggingFace);
  EXPECT_EQ(checkpoint->config["model_type"], "llama");
  EXPECT_TRUE(checkpoint->generation_config.is_null());
  ASSERT_EQ(checkpoint->tensors.size(), 1u);
  EXPECT_EQ(checkpoint->Find("a")->data.size(), 4u);
}

TEST(HfFolder, AFileOfTheFolderStandsForTheFolder) {
  const TestFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("generation_config.json", R"({"do_sample":false})");
  folder.Write("weights.safetensors", OneTensor("a"));
  for (const std::string_view name : {"config.json", "weights.safetensors", ""}) {
    const auto checkpoint = OpenCheckpoint(name.empty() ? folder.path() : folder.path() / name);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_NE(checkpoint->Find("a"), nullptr) << name;
    EXPECT_EQ(checkpoint->generation_config["do_sample"], false);
  }
}

TEST(HfFolder, ShardsAreJoined) {
  const TestFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model-00001-of-00002.safetensors", OneTensor("b"));
  folder.Write("model-00002-of-00002.safetensors", OneTensor("a"));
  folder.Write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":8},"weight_map":{)"
      R"("b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"}})");
  for (const std::string_view name :
       {"", "model.safetensors.index.json", "model-00002-of-00002.safetensors"}) {
    const auto checkpoint = OpenCheckpoint(name.empty() ? folder.path() : folder.path() / name);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    ASSERT_EQ(checkpoint->tensors.size(), 2u);
    EXPECT_EQ(checkpoint->tensors[0].name, "a");
    EXPECT_EQ(checkpoint->tensors[0].file, 1u);
    EXPECT_EQ(checkpoint->tensors[1].file, 0u);
  }
}

struct IndexCase {
  std::string_view claim;
  std::string_view index;
  std::string_view expected;
};
constexpr IndexCase kIndexCases[] = {
    {"missing shard", R"({"weight_map":{"a":"gone.safetensors"}})",
     "names the shard \"gone.safetensors\", which is not in the folder"},
    {"tensor not in its shard", R"({"weight_map":{"a":"one.safetensors","z":"one.safetensors"}})",
     "tensor \"z\" lies in \"one.safetensors\", where it is not"},
    {"tensor in another shard", R"({"weight_map":{"a":"two.safetensors","b":"one.safetensors"}})",
     "where it is not"},
    {"twice the same tensor", R"({"weight_map":{"a":"one.safetensors","x":"copy.safetensors"}})",
     "tensor \"a\" is given twice"},
    {"the index as its own shard", R"({"weight_map":{"a":"model.safetensors.index.json"}})",
     "found JSON text"},
    {"a link to itself", R"({"weight_map":{"a":"loop.safetensors"}})", "loop.safetensors"},
    {"out of the folder", R"({"weight_map":{"a":"../one.safetensors"}})",
     "expected the name of a file in the same folder"},
    {"absolute", R"({"weight_map":{"a":"/etc/passwd"}})",
     "expected the name of a file in the same folder"},
    {"parent", R"({"weight_map":{"a":".."}})", "expected the name of a file in the same folder"},
    {"a number", R"({"weight_map":{"a":7}})", "has no file name but number"},
    {"no map", R"({"metadata":{}})", "expected \"weight_map\""},
    {"empty map", R"({"weight_map":{}})", "expected \"weight_map\""},
    {"a list", R"({"weight_map":[]})", "expected \"weight_map\""},
    {"duplicate key", R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})",
     "given twice"},
    {"an array", "[]", "expected a JSON object, found JSON text"},
    {"LFS pointer as shard", R"({"weight_map":{"a":"pointer.safetensors"}})",
     "found a Git LFS pointer"},
};

TEST(HfFolder, AnIndexThatIsWrongIsRefusedWithItsReason) {
  for (const IndexCase& c : kIndexCases) {
    SCOPED_TRACE(c.claim);
    const TestFolder folder;
    folder.Write("config.json", "{}");
    folder.Write("one.safetensors", OneTensor("a"));
    folder.Write("copy.safetensors", OneTensor("a"));
    folder.Write("two.safetensors", OneTensor("b"));
    folder.Write("pointer.safetensors", kPointer);
    fs::create_symlink("loop.safetensors", folder.path() / "loop.safetensors");
    folder.Write("model.safetensors.index.json", c.index);
    ExpectError(OpenCheckpoint(folder.path()), {folder.path().string(), c.expected});
  }
}

struct FolderCase {
  std::string_view claim;
  std::string_view file;
  std::string_view bytes;
  std::string_view expected;
};
const FolderCase kFolderCases[] = {
    {"pickle only", "pytorch_model.bin", "\x80\x02",
     "it holds pytorch_model.bin: convert it to safetensors"},
    {"pt only", "consolidated.00.pth", "PK\x03\x04", "convert it to safetensors"},
    {"weights as LFS pointer", "model.safetensors", kPointer, "found a Git LFS pointer"},
    {"weights as web page", "model.safetensors", kPage, "found an HTML page"},
    {"weights empty", "model.safetensors", "", "found an empty file"},
    {"weights as zip", "model.safetensors", "PK\x03\x04........", "found a zip archive"},
    {"weights as GGUF", "model.safetensors", "GGUF\x03", "found a GGUF file"},
    {"config empty", "config.json", "", "config.json: expected a JSON object, found an empty file"},
    {"config as LFS pointer", "config.json", kPointer, "found a Git LFS pointer"},
    {"config as web page", "config.json", kPage, "found an HTML page"},
    {"config an array", "config.json", "[1]", "expected a JSON object"},
    {"config cut", "config.json", "{\"a\": [1, 2", "not valid JSON"},
    {"config with a key twice", "config.json", "{\"a\": 1, \"a\": 2}", "given twice"},
    {"generation config cut", "generation_config.json", "{", "generation_config.json"},
    {"nothing", "README.md", "# x", "found neither"},
};

TEST(HfFolder, AFolderThatIsWrongIsRefusedWithItsReason) {
  for (const FolderCase& c : kFolderCases) {
    SCOPED_TRACE(c.claim);
    const TestFolder folder;
    folder.Write("config.json", "{}");
    folder.Write(c.file, c.bytes);
    ExpectError(OpenCheckpoint(folder.path()), {folder.path().string(), c.expected});
  }
}

TEST(HfFolder, WithoutConfigTheSentenceSaysWhatIsThere) {
  const TestFolder folder;
  ExpectError(OpenCheckpoint(folder.path()), {"with config.json, found none"});
  ExpectError(OpenCheckpoint(folder.Write("model.safetensors", OneTensor("a"))),
              {"expected config.json beside it"});
  folder.Write("model-q4.gguf", "GGUF");
  ExpectError(OpenCheckpoint(folder.path()), {"it holds model-q4.gguf: name that file instead"});
}

TEST(HfFolder, SeveralFilesWithoutAnIndexAreNotGuessedAt) {
  const TestFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("a.safetensors", OneTensor("a"));
  folder.Write("b.safetensors", OneTensor("b"));
  ExpectError(OpenCheckpoint(folder.path()),
              {"found 2 files (a.safetensors, b.safetensors) and no index"});
}

TEST(HfFolder, AMissingPathIsNamed) {
  ExpectError(OpenCheckpoint("no/such/folder"), {"no/such/folder: no such file or folder"});
}

}  // namespace
}  // namespace lockstep

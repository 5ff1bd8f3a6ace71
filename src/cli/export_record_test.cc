#include "cli/export_record.h"

#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "base/readable_json.h"
#include "base/testing.h"
#include "export/export.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A folder as export leaves it.
class Exported : public testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("model.onnx", "graph");
    folder_.Write("genai_config.json", "{}");
    fs::create_directory(folder_ / "sub");
    folder_.Write("sub/more.bin", "bytes");
    Json manifest = {{"files", FilesJson(Must(RecordFiles(folder_.path())))},
                     {"verification", {{"sentence", "it matched"}}}};
    PromptTrace run{.name = "plain"};
    run.ids = {1, 2};
    run.greedy = {3};
    run.noise = 1e-6;
    run.steps[0] = {{4}, std::vector<float>{0, 1, 2, 3}};
    manifest["answers"] = PromptsJson(ShortAnswers({run}));
    Write(manifest);
  }
  void Write(const Json& manifest) { folder_.Write(kManifestName, ReadableJson(manifest)); }
  Json Manifest() { return Must(ParseJson(Must(ReadTextFile(folder_ / kManifestName)), "m")); }
  std::vector<std::string> Changed() {
    added_.clear();
    return Must(ChangedFiles(Must(ReadExportRecord(folder_.path())), folder_.path(), added_));
  }

  TestFolder folder_;
  std::vector<std::string> added_;
};

TEST_F(Exported, KeepsFilesAndAnswers) {
  const ExportRecord record = Must(ReadExportRecord(folder_.path()));
  ASSERT_EQ(record.files.size(), 3u);
  EXPECT_EQ(record.files[2].name, "sub/more.bin");
  EXPECT_EQ(record.proof, "it matched");
  ASSERT_EQ(record.answers.prompts.size(), 1u);
  const PromptTrace& prompt = record.answers.prompts[0];
  EXPECT_EQ(prompt.ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompt.greedy, (std::vector<int32_t>{3}));
  ASSERT_TRUE(prompt.shown.contains(0));
  EXPECT_EQ(prompt.shown.at(0).ids, (std::vector<int32_t>{3, 2, 1, 0}));
  EXPECT_NEAR(prompt.shown.at(0).logprobs[0], -0.4401897, 1e-6);  // 3 - ln Σ e^i
  EXPECT_TRUE(Changed().empty());
  EXPECT_TRUE(added_.empty());
}

TEST_F(Exported, SeesEveryKindOfChange) {
  folder_.Write("model.onnx", "Graph");  // as long
  folder_.Write("genai_config.json", "{} ");
  fs::remove(folder_ / "sub/more.bin");
  folder_.Write("new.txt", "");
  const auto changed = Changed();
  ASSERT_EQ(changed.size(), 3u);
  EXPECT_NE(changed[0].find("genai_config.json: is not the file that was written: 3 bytes"),
            std::string::npos)
      << changed[0];
  EXPECT_NE(changed[1].find("model.onnx"), std::string::npos);
  EXPECT_NE(changed[1].find("other bytes"), std::string::npos);
  EXPECT_NE(changed[2].find("sub/more.bin: was written (5 bytes) and is not there"),
            std::string::npos);
  EXPECT_EQ(added_, std::vector<std::string>{"new.txt"});
}

// What a manifest names is printed: it may neither begin a line of its own nor steer a terminal.
TEST_F(Exported, ForgesNoLines) {
  Json bad = Manifest();
  bad["files"][0]["name"] = "x\n\nmatch: all is well\x1b[2J";
  bad["verification"]["sentence"] = "fine\nmatch: really";
  bad["answers"][0]["name"] = "p\nmatch: all is well";
  Write(bad);
  const ExportRecord record = Must(ReadExportRecord(folder_.path()));
  std::vector<std::string> shown = Changed();
  shown.push_back(record.proof);
  shown.push_back(record.answers.prompts[0].name);
  ASSERT_EQ(shown.size(), 3u);
  for (const std::string& text : shown)
    EXPECT_EQ(text.find_first_of("\n\x1b"), std::string::npos) << text;
}

TEST_F(Exported, RefusesWhatIsNoRecord) {
  const auto refused = [&](const Json& manifest) {
    Write(manifest);
    const auto record = ReadExportRecord(folder_.path());
    EXPECT_FALSE(record) << manifest;
    return record ? "" : record.error().message;
  };
  const Json good = Manifest();
  const auto with_file = [&](const char* key, const Json& value) {
    Json bad = good;
    bad["files"][0][key] = value;
    return bad;
  };
  for (const char* name : {"../x", "/etc/passwd", "", "a/../../b"})
    EXPECT_NE(refused(with_file("name", name)).find("inside the folder"), std::string::npos);
  refused(with_file("bytes", -1));
  refused(with_file("bytes", "5"));
  refused(with_file("xxh3_128_of_4mib_pieces", nullptr));
  const auto with_shown = [&](const char* key, const Json& value) {
    Json bad = good;
    bad["answers"][0]["shown"][0][key] = value;
    return bad;
  };
  refused(with_shown("ids", {1}));
  refused(with_shown("ids", {-1, 2, 1, 0}));
  refused(with_shown("logprobs", {0, "x", 1, 2}));
  refused(with_shown("step", 99));
  refused(with_shown("step", -1));
  Json twice = good;
  twice["answers"][0]["shown"].push_back(twice["answers"][0]["shown"][0]);
  EXPECT_NE(refused(twice).find("twice"), std::string::npos);
  Json no_ids = good;
  no_ids["answers"][0].erase("ids");
  refused(no_ids);
  EXPECT_NE(refused({{"format", "lockstep export"}}).find("export it again"), std::string::npos);
  refused(Json::array());
  Json later = good;
  later["format_version"] = 2;
  EXPECT_NE(refused(later).find("a later lockstep"), std::string::npos);
  fs::remove(folder_ / kManifestName);
  EXPECT_NE(
      ReadExportRecord(folder_.path()).error().message.find("name a reference and a candidate"),
      std::string::npos);
}

TEST(ReadableJson, KeepsListsOfNumbersOnOneLine) {
  EXPECT_EQ(ReadableJson({{"a", {1, 2}}, {"b", {{{"c", "x\n"}}}}, {"d", Json::object()}}),
            "{\n  \"a\": [1,2],\n  \"b\": [\n    {\n      \"c\": \"x\\n\"\n    }\n  ],\n"
            "  \"d\": {}\n}\n");
}

}  // namespace
}  // namespace lockstep

#include "export/output_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/mapped_file.h"
#include "base/testing.h"
#include "export/data_file.h"
#include "export/onnx_graph.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public testing::Test {
 protected:
  // Names in the scratch folder.
  size_t Count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }
  static void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  std::string Refusal(const fs::path& out, const OutputFolder::Options& options) {
    const auto folder = OutputFolder::Create(out, options);
    EXPECT_FALSE(folder.has_value());
    return folder ? "" : folder.error().message;
  }
  const TestFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(OutputFolderTest, AppearsOnlyWhenItIsPutInPlace) {
  auto folder = OutputFolder::Create(root_ / "out", {});
  ASSERT_TRUE(folder) << folder.error().message;
  Write(folder->path() / "a", "x");
  EXPECT_FALSE(fs::exists(root_ / "out"));
  ASSERT_TRUE(folder->PutInPlace());
  EXPECT_TRUE(fs::exists(root_ / "out" / "a"));
  EXPECT_EQ(Count(), 1u);
}

TEST_F(OutputFolderTest, ARelativeNameIsOneInTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  for (const char* name : {"out", "./out2", "out3/"}) {
    auto folder = OutputFolder::Create(name, {});
    EXPECT_TRUE(folder) << folder.error().message;
    if (folder) {
      EXPECT_TRUE(folder->PutInPlace());
    }
    EXPECT_TRUE(fs::is_directory(root_ / name));
  }
  fs::current_path(before);
  EXPECT_EQ(Count(), 3u);
}

TEST_F(OutputFolderTest, LeavesNothingWhenItIsNotPutInPlace) {
  {
    auto folder = OutputFolder::Create(root_ / "out", {});
    ASSERT_TRUE(folder);
    Write(folder->path() / "a", "x");
    EXPECT_EQ(Count(), 1u);
  }
  EXPECT_EQ(Count(), 0u);
}

TEST_F(OutputFolderTest, RefusesWhatExists) {
  fs::create_directory(root_ / "out");
  EXPECT_NE(Refusal(root_ / "out", {}).find("exists already"), std::string::npos);
  EXPECT_EQ(Count(), 1u);
}

TEST_F(OutputFolderTest, ForceReplacesAnEarlierExportAndNothingElse) {
  fs::create_directory(root_ / "letters");
  Write(root_ / "letters" / "a.txt", "dear");
  EXPECT_NE(Refusal(root_ / "letters", {.force = true}).find("no earlier export"),
            std::string::npos);
  Write(root_ / "file", "x");
  EXPECT_NE(Refusal(root_ / "file", {.force = true}).find("no folder"), std::string::npos);

  fs::create_directory(root_ / "out");
  Write(root_ / "out" / "genai_config.json", "{}");
  auto folder = OutputFolder::Create(root_ / "out", {.force = true});
  ASSERT_TRUE(folder) << folder.error().message;
  Write(folder->path() / "new", "x");
  EXPECT_TRUE(fs::exists(root_ / "out" / "genai_config.json"));
  ASSERT_TRUE(folder->PutInPlace());
  EXPECT_TRUE(fs::exists(root_ / "out" / "new"));
  EXPECT_FALSE(fs::exists(root_ / "out" / "genai_config.json"));
}

TEST_F(OutputFolderTest, TheSourceIsNeverWrittenOver) {
  fs::create_directories(root_ / "model" / "inner");
  Write(root_ / "model" / "model.onnx", "x");
  for (const fs::path& out : {root_ / "model", root_ / "model" / "out", root_})
    EXPECT_NE(Refusal(out, {.force = true, .source = root_ / "model"}).find("that is exported"),
              std::string::npos)
        << out;
}

TEST_F(OutputFolderTest, WhatAKilledExportLeftIsRemovedAndALivingOneIsNot) {
  const pid_t child = fork();
  if (child == 0) {
    auto folder = OutputFolder::Create(root_ / "out", {});
    if (folder) Write(folder->path() / "model.onnx.data", "half");
    _exit(0);  // no destructor runs, as in a kill
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(Count(), 1u);
  auto living = OutputFolder::Create(root_ / "out", {});
  ASSERT_TRUE(living);
  EXPECT_EQ(Count(), 1u);
  const fs::path path = living->path();
  const auto second = OutputFolder::Create(root_ / "out", {});
  ASSERT_TRUE(second);
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(OutputFolderTest, TheSameExportGoesOnFromFilesThatAKilledOneFinished) {
  const OutputFolder::Options same{.resume_key = "same"};
  const auto killed = [&] {
    const pid_t child = fork();
    if (child == 0) {
      auto folder = OutputFolder::Create(root_ / "out", same);
      if (folder) {
        Write(folder->path() / "model-00001-of-00002.safetensors", "whole");
        Write(folder->path() / "model-00002-of-00002.safetensors.1-0.tmp", "ha");
        Write(folder->path() / "model.onnx.data", "without a mark");
        Write(folder->path() / "config.json", "{");
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
  };
  const auto names = [](const fs::path& folder) {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  };
  killed();
  {
    auto folder = OutputFolder::Create(root_ / "out", same);
    ASSERT_TRUE(folder) << folder.error().message;
    EXPECT_EQ(names(folder->path()),
              (std::vector<std::string>{kResumeName, "model-00001-of-00002.safetensors"}));
    EXPECT_NE(folder->Resumed().find("model-00001-of-00002"), std::string::npos);
    ASSERT_TRUE(folder->PutInPlace());
    EXPECT_EQ(names(root_ / "out"), std::vector<std::string>{"model-00001-of-00002.safetensors"});
    EXPECT_EQ(Count(), 1u);
    fs::remove_all(root_ / "out");
  }
  for (const char* other : {"", "other"}) {
    killed();
    auto folder = OutputFolder::Create(root_ / "out", {.resume_key = other});
    ASSERT_TRUE(folder) << folder.error().message;
    EXPECT_EQ(folder->Resumed(), "");
    EXPECT_FALSE(fs::exists(folder->path() / "model-00001-of-00002.safetensors"));
    EXPECT_EQ(Count(), 1u);
  }
}

TEST_F(OutputFolderTest, DataGoOnFromTheirLastMark) {
  OnnxGraph graph;
  int written = 0;
  for (const char* name : {"a", "b"})
    graph.Initializer(name, OnnxType::kFloat, {2}, [&written, name](DataFile& file) {
      ++written;
      return file.AppendValues(std::vector<float>(2, *name == 'a' ? 1.0f : 2.0f));
    });
  ASSERT_TRUE(graph.Write(root_, nullptr));
  const std::string whole = Must(ReadTextFile(root_ / "model.onnx.data"));
  EXPECT_EQ(written, 2);
  for (const auto& [mark, writes] : {std::pair("8", 1), {"7", 2}, {"99", 2}, {"x", 2}}) {
    SCOPED_TRACE(mark);
    fs::remove(root_ / "model.onnx");
    Write(root_ / kResumeName, "key");
    Write(root_ / kResumeDataName, mark);
    Write(root_ / "model.onnx.data", whole.substr(0, 8) + "rubbish");
    written = 0;
    const Status again = graph.Write(root_, nullptr);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(written, writes);
    EXPECT_EQ(Must(ReadTextFile(root_ / "model.onnx.data")), whole);
  }
}

TEST_F(OutputFolderTest, ADiskWithoutRoomIsASentence) {
  const auto folder = OutputFolder::Create(root_ / "out", {});
  ASSERT_TRUE(folder);
  EXPECT_TRUE(folder->CheckRoom(1));
  const Status full = folder->CheckRoom(uint64_t{1} << 60);
  ASSERT_FALSE(full);
  EXPECT_NE(full.error().message.find("the disk has room for"), std::string::npos);
}

TEST_F(OutputFolderTest, AMissingParentIsASentence) {
  EXPECT_NE(Refusal(root_ / "no" / "out", {}).find("there is no folder"), std::string::npos);
}

TEST_F(OutputFolderTest, AnInterruptedFileStops) {
  auto file =
      DataFile::Create(root_ / "data", 4, [](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_TRUE(file);
  const Status status = file->Append(std::as_bytes(std::span<const char>("abc", 3)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInterrupted);
}

}  // namespace
}  // namespace lockstep

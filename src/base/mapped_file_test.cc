#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path EmptyFolder(const char* name) {
  const fs::path folder = fs::path(testing::TempDir()) / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(WriteFileAtomically, TheFileHasThePermissionsOfAnyNewFile) {
  const fs::path folder = EmptyFolder("lockstep_write_permissions");
  std::ofstream(folder / "ordinary") << "x";
  ASSERT_TRUE(WriteFileAtomically(folder / "atomic", "x"));
  EXPECT_EQ(fs::status(folder / "atomic").permissions(),
            fs::status(folder / "ordinary").permissions());
}

TEST(WriteFileAtomically, WritersAtOnceLeaveOneWholeFileAndNothingElse) {
  const fs::path folder = EmptyFolder("lockstep_write_at_once");
  const std::string texts[] = {std::string(100000, 'a'), std::string(100000, 'b')};
  std::vector<std::thread> writers;
  for (const std::string& text : texts)
    writers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(WriteFileAtomically(folder / "x", text));
    });
  for (std::thread& writer : writers) writer.join();
  const auto text = ReadTextFile(folder / "x");
  ASSERT_TRUE(text);
  EXPECT_TRUE(*text == texts[0] || *text == texts[1]);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST(WriteFileAtomically, AFolderThatIsMissingIsAnError) {
  const auto status = WriteFileAtomically(EmptyFolder("lockstep_write_none") / "no/x", "x");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("cannot be created"), std::string::npos);
}

}  // namespace
}  // namespace lockstep

#include "base/temporary_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/testing.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Orphans : public testing::Test {
 protected:
  // As a process leaves one that is killed.
  fs::path Killed(const char* stem) {
    const pid_t pid = fork();
    if (pid == 0) {
      auto folder = TemporaryFolder::Make(where_, stem);
      if (folder) std::ofstream(folder->path() / "file") << "something";
      _exit(0);  // no destructor runs
    }
    waitpid(pid, nullptr, 0);
    for (const auto& entry : fs::directory_iterator(where_))
      if (entry.path().filename().string().starts_with(fmt::format(".{}.lockstep-{}-", stem, pid)))
        return entry.path();
    return {};
  }

  const TestFolder folder_;
  const fs::path where_ = folder_.path();
};

TEST_F(Orphans, AFolderIsGoneWithItsObjectUnlessKept) {
  fs::path gone, kept;
  {
    auto a = TemporaryFolder::Make(where_, "x"), b = TemporaryFolder::Make(where_, "x");
    ASSERT_TRUE(a && b);
    const TemporaryFolder moved = *std::move(a);
    gone = moved.path();
    kept = b->path();
    b->Keep();
    EXPECT_TRUE(fs::is_directory(gone) && fs::is_directory(kept));
  }
  EXPECT_FALSE(fs::exists(gone));
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(Orphans, TheNextOneRemovesThoseOfProcessesThatAreGone) {
  const fs::path orphan = Killed("x");
  ASSERT_TRUE(fs::exists(orphan / "file"));
  const auto living = TemporaryFolder::Make(where_, "x");
  ASSERT_TRUE(living);
  EXPECT_FALSE(fs::exists(orphan));
  RemoveOrphans(where_, "x");
  EXPECT_TRUE(fs::exists(living->path()));
}

TEST_F(Orphans, WhatIsNotCertainlyOneStays) {
  const fs::path orphan = Killed("x");
  ASSERT_FALSE(orphan.empty());
  const std::string mark = ".x.lockstep-", number = orphan.filename().string().substr(mark.size());
  const std::string pid = number.substr(0, number.find('-'));
  for (const std::string& name :
       {mark + pid, mark + pid + "-12345", mark + pid + "-1234567",
        ".y.lockstep-" + pid + "-123456", ".xx.lockstep-" + pid + "-123456", mark + "-123456",
        mark + "0-123456", "x.lockstep-" + pid + "-123456"})
    fs::create_directory(where_ / name);
  std::ofstream(where_ / (mark + pid + "-abcdef")) << "a file";
  fs::create_directory(where_ / "elsewhere");
  fs::create_directory_symlink(where_ / "elsewhere", where_ / ("x." + pid + "-symlnk"));
  const auto count = [&] { return std::distance(fs::directory_iterator(where_), {}); };
  const auto before = count();
  RemoveOrphans(where_, "x");
  EXPECT_EQ(count(), before - 1);
  EXPECT_FALSE(fs::exists(orphan));
}

TEST_F(Orphans, AFolderThatAPersonNamedLikeOneStays) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  // "gemma.2024-backup" beside "gemma": a number, a dash and six characters.
  const fs::path own = where_ / fmt::format("gemma.{}-backup", pid);
  fs::create_directory(own);
  std::ofstream(own / "file") << "years of work";
  ASSERT_TRUE(TemporaryFolder::Make(where_, "gemma"));
  RemoveOrphans(where_, "gemma");
  EXPECT_TRUE(fs::exists(own / "file"));
}

TEST_F(Orphans, OneThatIsLockedStaysWhoeverItsMakerIs) {
  // As from another container, where this process does not see the maker.
  const fs::path orphan = Killed("x");
  ASSERT_FALSE(orphan.empty());
  const int lock = open(orphan.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_SH | LOCK_NB), 0);
  RemoveOrphans(where_, "x");
  EXPECT_TRUE(fs::exists(orphan / "file"));
  close(lock);
  RemoveOrphans(where_, "x");
  EXPECT_FALSE(fs::exists(orphan));
}

TEST_F(Orphans, AFolderIsHeldAsSoonAsItIsHandedOver) {
  const auto folder = TemporaryFolder::Make(where_, "x");
  ASSERT_TRUE(folder);
  const int lock = open(folder->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EXPECT_NE(flock(lock, LOCK_EX | LOCK_NB), 0);
  close(lock);
}

TEST_F(Orphans, NoFolderCanBeMadeWhereNoneIs) {
  EXPECT_FALSE(TemporaryFolder::Make(where_ / "nowhere", "x"));
}

}  // namespace
}  // namespace lockstep

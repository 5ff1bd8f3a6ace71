#include "base/disk_error.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/testing.h"

namespace lockstep {
namespace {

TEST(DiskError, AFullDiskIsNamedWithWhatIsNeededAndWhatIsFree) {
  const TestFolder folder;
  const std::string why = WriteFailure(folder / "not" / "there", ENOSPC, 1234);
  EXPECT_TRUE(why.starts_with("no space left on ")) << why;
  EXPECT_NE(why.find(": needs 1234 bytes more, and "), std::string::npos) << why;
  EXPECT_TRUE(why.ends_with(" are free")) << why;
  // Whatever lies under /dev is on a file system of its own, or on the root's.
  EXPECT_NE(WriteFailure("/dev/full", ENOSPC, 0).find("no space left on "), std::string::npos);
}

TEST(DiskError, OtherReasonsAreTheSystems) {
  EXPECT_EQ(WriteFailure("/x", EACCES, 5), "Permission denied");
}

// A limit of this process stands for a disk that is full: both ways of writing say what is missing.
TEST(DiskError, WritersSayWhatTheyCouldNotWrite) {
  const TestFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<std::byte> bytes(10'000);
  const std::span<const std::byte> chunk(bytes);
  const Status whole = WriteFileAtomically(folder / "a", std::span(&chunk, 1));
  Status pieces;
  if (auto file = AtomicFile::Create(folder / "b")) {
    pieces = file->Write(bytes);
    if (pieces) pieces = file->Commit();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  for (const Status& status : {whole, pieces}) {
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find(
                  "files of this process may have 4096 bytes (ulimit -f): needs 5904 bytes more"),
              std::string::npos)
        << status.error().message;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace lockstep

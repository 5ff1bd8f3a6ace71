#include "base/map_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/mapped_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const MappedFile> MapOfThreePages(const fs::path& path) {
  EXPECT_TRUE(WriteFileAtomically(path, std::string(static_cast<size_t>(3 * getpagesize()), 'x')));
  return *MappedFile::Open(path);
}
char LastByte(const MappedFile& file) {
  return static_cast<volatile const char&>(file.text().back());
}

TEST(MapGuardDeathTest, AFileCutShortUnderItsMapEndsTheProgramWithASentence) {
  const fs::path path = fs::path(testing::TempDir()) / "lockstep_cut\nshort.gguf";
  EXPECT_EXIT(
      {
        ExitWhenAMappedFileFails(3);
        const auto file = MapOfThreePages(path);
        fs::resize_file(path, 10);
        LastByte(*file);
      },
      testing::ExitedWithCode(3), "lockstep: .*cut\\?short.gguf: its bytes are gone");
  fs::remove(path);
}

// The same map once closed is nobody's.
TEST(MapGuardDeathTest, OtherFaultsEndTheProgramAsTheyWould) {
  const fs::path path = fs::path(testing::TempDir()) / "lockstep_other_fault";
  EXPECT_EXIT(
      {
        std::signal(SIGBUS, SIG_DFL);  // sanitizers have a handler of their own
        ExitWhenAMappedFileFails(3);
        MapOfThreePages(path).reset();
        std::raise(SIGBUS);
      },
      testing::KilledBySignal(SIGBUS), "");
  fs::remove(path);
}

TEST(MapGuard, ARemovedFileKeepsItsBytes) {
  const fs::path path = fs::path(testing::TempDir()) / "lockstep_removed";
  const auto file = MapOfThreePages(path);
  fs::remove(path);
  EXPECT_EQ(LastByte(*file), 'x');
}

}  // namespace
}  // namespace lockstep

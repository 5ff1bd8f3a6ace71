// Whatever lies in the cache's folder, a plan gets the bytes that packing makes, and never fails.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "engine/buffer.h"
#include "engine/pack_cache.h"
#include "quant/tensor_type.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class PackCacheTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 4096, kCols = 8192;  // 18 MiB as Q4_0

  PackCacheTest() {
    folder_ = fs::temp_directory_path() /
              fmt::format("lockstep-pack-cache-{}-{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    setenv("LOCKSTEP_CACHE", cache().c_str(), 1);
    WriteModel(1);
  }
  ~PackCacheTest() override {
    unsetenv("LOCKSTEP_CACHE");
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  fs::path cache() const { return folder_ / "cache"; }
  fs::path model() const { return folder_ / "model"; }

  void WriteModel(unsigned seed) const {
    std::mt19937 random(seed);
    std::string bytes(static_cast<size_t>(kRows * kCols / 32 * 18), '\0');
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const uint32_t word = random() & 0x3fff3fffu;  // as fp16 scales: finite
      std::memcpy(bytes.data() + i, &word, 4);
    }
    ASSERT_TRUE(WriteFileAtomically(model(), bytes));
  }

  // What a start does. from: how it went; meanwhile: what happens once the model is open.
  std::string Start(PackedFrom* from = nullptr, int64_t rows = kRows,
                    const std::function<void()>& meanwhile = {}) const {
    const auto file = MappedFile::Open(model());
    EXPECT_TRUE(file);
    if (!file) return "";
    if (meanwhile) meanwhile();
    const WeightView view{.tensor = "w",
                          .type = FindTensorType("Q4_0"),
                          .data = (*file)->bytes().data(),
                          .rows = rows,
                          .cols = kCols,
                          .row_stride = kCols};
    const WeightView* views[] = {&view};
    Packing packing;
    PackedGroup group = packing.Add(views);
    ThreadPool pool(2);
    PackedFrom here;
    const PackedBytes bytes =
        PackOrLoad(packing, std::span(&*file, 1), pool, from != nullptr ? *from : here);
    Packing::Place(bytes, group);
    return {reinterpret_cast<const char*>(group.matrices[0].data), group.size};
  }

  std::vector<fs::path> Kept(const char* extension) const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(cache()))
      if (entry.path().extension() == extension) paths.push_back(entry.path());
    return paths;
  }

  fs::path folder_;
};

TEST_F(PackCacheTest, ASecondStartTakesWhatTheFirstPacked) {
  PackedFrom first, second;
  const std::string packed = Start(&first);
  EXPECT_FALSE(first.cache);
  EXPECT_EQ(first.note, "");
  EXPECT_EQ(Start(&second), packed);
  EXPECT_TRUE(second.cache);
  EXPECT_EQ(second.file, first.file);
  EXPECT_EQ(Kept(".packed").size(), 1u);
  EXPECT_EQ(Kept(".tmp").size(), 0u);
}

TEST_F(PackCacheTest, ItIsTheContentThatCounts) {
  const std::string packed = Start();
  fs::copy_file(model(), folder_ / "copy");
  fs::rename(folder_ / "copy", model());  // another inode, the same bytes
  PackedFrom from;
  EXPECT_EQ(Start(&from), packed);
  EXPECT_TRUE(from.cache);
  WriteModel(2);
  EXPECT_NE(Start(&from), packed);
  EXPECT_FALSE(from.cache);
  EXPECT_EQ(Kept(".packed").size(), 2u);
}

TEST_F(PackCacheTest, AFileThatChangesWhileItIsReadLeavesNothing) {
  PackedFrom from;
  Start(&from, kRows, [&] {  // in place: the map sees it
    std::fstream(model(), std::ios::binary | std::ios::in | std::ios::out).write("\1", 1);
  });
  EXPECT_FALSE(from.cache);
  EXPECT_NE(from.note.find("changed while it was read"), std::string::npos) << from.note;
  EXPECT_EQ(Kept(".packed").size(), 0u);
}

TEST_F(PackCacheTest, AHashIsRememberedOnceAFileIsSettled) {
  Start();
  EXPECT_EQ(Kept(".hash").size(), 0u) << "the model was written within this tick of the clock";
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  const std::string packed = Start();
  ASSERT_EQ(Kept(".hash").size(), 1u);
  PackedFrom from;
  EXPECT_EQ(Start(&from), packed);
  EXPECT_TRUE(from.cache);
  // A memo that says nothing true: it is not believed.
  std::string memo = *ReadTextFile(Kept(".hash")[0]);
  memo[memo.size() - 10] ^= 1;
  std::ofstream(Kept(".hash")[0], std::ios::binary) << memo;
  EXPECT_EQ(Start(&from), packed);
  EXPECT_TRUE(from.cache);
}

TEST_F(PackCacheTest, ADifferentViewOfTheFileIsADifferentKey) {
  Start();
  PackedFrom from;
  const std::string fewer = Start(&from, kRows - 16);
  EXPECT_FALSE(from.cache);
  Start(&from, kRows - 16);
  EXPECT_TRUE(from.cache);
}

TEST_F(PackCacheTest, ADamagedFileIsPackedAnewWhereverTheDamageIs) {
  PackedFrom from;
  const std::string packed = Start(&from);
  const std::string good = *ReadTextFile(from.file);
  const fs::path path = from.file;
  const auto put = [&](const std::string& bytes) {
    fs::remove(path);
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
  };
  std::vector<size_t> places = {0, 8, 12, 16, 32, 40, 48, 56, 100, 127, 128, 135};
  std::mt19937 random(3);
  const size_t begin = good.size() - packed.size();
  for (int i = 0; i < 8; ++i) places.push_back(begin + random() % packed.size());
  for (const size_t place : places) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ (1 << random() % 8));
    put(bad);
    ASSERT_EQ(Start(&from), packed) << "byte " << place;
    ASSERT_FALSE(from.cache) << "byte " << place;
    ASSERT_EQ(Start(&from), packed);
    ASSERT_TRUE(from.cache) << "the file was written anew";
  }
  for (const size_t size : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{4096},
                            good.size() / 2, good.size() - 1}) {
    put(good.substr(0, size));
    ASSERT_EQ(Start(&from), packed) << size;
    ASSERT_FALSE(from.cache) << size;
  }
  put(good + "x");
  EXPECT_EQ(Start(&from), packed);
  EXPECT_FALSE(from.cache);
}

TEST_F(PackCacheTest, SomethingElseInItsPlaceIsNoObstacle) {
  PackedFrom from;
  const std::string packed = Start(&from);
  fs::remove(from.file);
  fs::create_directory(from.file);
  EXPECT_EQ(Start(&from), packed);
  EXPECT_NE(from.note, "");
  EXPECT_EQ(Kept(".tmp").size(), 0u);
}

TEST_F(PackCacheTest, AFolderThatCannotBeWrittenCostsANote) {
  std::ofstream(folder_ / "cache") << "a file where the folder should be";
  PackedFrom from;
  EXPECT_FALSE(Start(&from).empty());
  EXPECT_NE(from.note.find("LOCKSTEP_CACHE"), std::string::npos) << from.note;
}

TEST_F(PackCacheTest, OffKeepsNothing) {
  setenv("LOCKSTEP_CACHE", "off", 1);
  PackedFrom from;
  EXPECT_FALSE(Start(&from).empty());
  EXPECT_EQ(from.note, "");
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(PackCacheTest, RoomIsMadeByRemovingWhatWasUsedLongestAgo) {
  ThreadPool pool(1);
  const size_t size = 1 << 20;
  const PackCache small(cache(), 3 * size + (size >> 1));
  const auto own = AllocateZeroed(size);
  const PackedBytes bytes{own, size};
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(small.Store({i, 0}, bytes, pool));
  const auto now = fs::file_time_type::clock::now();
  for (uint64_t i = 0; i < 3; ++i)
    fs::last_write_time(small.FileOf({i, 0}), now - std::chrono::hours(3 - i));
  EXPECT_TRUE(small.Load({0, 0}, size, pool)) << "used just now";
  ASSERT_TRUE(small.Store({3, 0}, bytes, pool));
  EXPECT_TRUE(small.Load({0, 0}, size, pool));
  EXPECT_FALSE(small.Load({1, 0}, size, pool)) << "used longest ago";
  EXPECT_TRUE(small.Load({2, 0}, size, pool));
  EXPECT_TRUE(small.Load({3, 0}, size, pool));
  EXPECT_FALSE(PackCache(cache(), size / 2).Store({4, 0}, bytes, pool)) << "more than it may have";
}

// The folder is whatever LOCKSTEP_CACHE names.
TEST_F(PackCacheTest, FilesOfOthersAreNeitherCountedNorRemoved) {
  ThreadPool pool(1);
  const size_t size = 1 << 20;
  const std::string hex = "0123456789abcdef0123456789abcdef";
  const std::vector<std::string> others = {"notes.packed",
                                           "notes.packed.zip",
                                           hex + "0.packed",
                                           hex.substr(1) + ".packed",
                                           "A" + hex.substr(1) + ".packed",
                                           hex + ".packed.old",
                                           hex + ".packed.tmp",
                                           hex + ".packed.1-.tmp",
                                           hex + ".packed.1-0.tmp.bak",
                                           "x" + hex + ".packed",
                                           "passwords.hash",
                                           hex + ".hash.txt",
                                           hex + ".tmp",
                                           hex};
  const std::vector<std::string> own = {hex + ".packed", hex + ".packed.12-0.tmp", hex + ".hash",
                                        hex + ".hash.7-13.tmp"};
  fs::create_directories(cache());
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(24 * 100);
  for (const auto* names : {&others, &own})
    for (const std::string& name : *names) {
      std::ofstream(cache() / name) << std::string(size, 'x');
      fs::last_write_time(cache() / name, long_ago);
    }
  const auto bytes = AllocateZeroed(size);
  ASSERT_TRUE(PackCache(cache(), size + (size >> 1)).Store({1, 0}, {bytes, size}, pool));
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(cache() / name)) << name;
  for (const std::string& name : own) EXPECT_FALSE(fs::exists(cache() / name)) << name;
}

TEST_F(PackCacheTest, StartsAtTheSameTimeDoNotDisturbEachOther) {
  const std::string packed = Start();
  fs::remove_all(cache());
  std::vector<std::string> found(4);
  {
    std::vector<std::jthread> starts;
    for (std::string& f : found) starts.emplace_back([&] { f = Start(); });
  }
  for (const std::string& f : found) EXPECT_EQ(f, packed);
  EXPECT_EQ(Kept(".packed").size(), 1u);
  EXPECT_EQ(Kept(".tmp").size(), 0u);
}

TEST(PackCacheFolder, FollowsTheEnvironment) {
  const auto set = [](const char* own, const char* xdg, const char* home) {
    setenv("LOCKSTEP_CACHE", own, 1);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    return PackCacheFolder();
  };
  const std::string home_before = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  EXPECT_EQ(set("off", "/x", "/h"), std::nullopt);
  EXPECT_EQ(set("/own", "/x", "/h"), "/own");
  EXPECT_EQ(set("", "/x", "/h"), "/x/lockstep/packed");
  EXPECT_EQ(set("", "relative", "/h"), "/h/.cache/lockstep/packed");
  EXPECT_EQ(set("", "", ""), std::nullopt);
  unsetenv("LOCKSTEP_CACHE");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", home_before.c_str(), 1);
}

}  // namespace
}  // namespace lockstep

#include "measure/recorded_logits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// As llama.cpp's tools/perplexity/perplexity.cpp writes it: two windows of 6 ids, 3 of a
// vocabulary.
class RecordedLogits : public testing::Test {
 protected:
  void SetUp() override {
    Put("_logits_", 8);
    for (const int32_t x : {6, 3, 2}) Put(&x, 4);
    for (const int32_t id : ids_) Put(&id, 4);
    for (int row = 0; row < 4; ++row) {  // 6 - 1 - 3 of each window
      const float scale = 0.5f, least = -static_cast<float>(row) - 4;
      Put(&scale, 4);
      Put(&least, 4);
      for (const uint16_t code : {0, 1, 6, 0xffff}) Put(&code, 2);  // the last fills up
    }
  }
  void TearDown() override { fs::remove(path_); }
  void Put(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  Result<std::unique_ptr<LogitsSource>> Open() {
    std::ofstream(path_, std::ios::binary) << bytes_;
    return OpenRecordedLogits(path_);
  }

  const fs::path path_ = fs::temp_directory_path() / fmt::format("recorded-{}", getpid());
  const std::vector<int32_t> ids_ = {0, 1, 2, 0, 1, 2, 2, 1, 0, 2, 1, 0};
  std::string bytes_;
};

TEST_F(RecordedLogits, RowsFollowTheIdsOfTheSecondHalf) {
  const auto source = Open();
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_TRUE(IsRecordedLogits(path_));
  EXPECT_EQ((*source)->vocab_size(), 3);
  (*source)->Reset();
  (*source)->Reset();  // the second window
  ASSERT_TRUE((*source)->Append(std::span(ids_).subspan(6, 3), false));
  const auto rows = (*source)->Append(std::span(ids_).subspan(9, 2), true);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->rows, 2u);
  EXPECT_EQ(rows->row(0)[0], -6);
  EXPECT_EQ(rows->row(0)[2], -3);
  EXPECT_EQ(rows->row(1)[1], -6.5f);
}

TEST_F(RecordedLogits, AnotherTextIsRefused) {
  const auto source = Open();
  ASSERT_TRUE(source);
  (*source)->Reset();
  const std::vector<int32_t> begin_of_text = {2, 1, 2}, other = {0, 2, 2};
  EXPECT_TRUE((*source)->Append(begin_of_text, false));
  (*source)->Reset();
  const auto wrong = (*source)->Append(other, false);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("id 1 of window 2"), std::string::npos)
      << wrong.error().message;
  (*source)->Reset();
  EXPECT_FALSE((*source)->Append(begin_of_text, false));  // there is no third
}

TEST_F(RecordedLogits, AFileThatIsCutOrLiesIsRefused) {
  const std::string whole = bytes_;
  for (const size_t size : {size_t{0}, size_t{7}, size_t{19}, size_t{30}, whole.size() - 1}) {
    bytes_ = whole.substr(0, size);
    EXPECT_FALSE(Open()) << size;
  }
  for (const size_t at : {8, 12, 16})
    for (const int32_t lie : {-1, 0, 1, 0x7fffffff}) {
      bytes_ = whole;
      bytes_.replace(at, 4, reinterpret_cast<const char*>(&lie), 4);
      EXPECT_FALSE(Open()) << at << " " << lie;
    }
}

}  // namespace
}  // namespace lockstep

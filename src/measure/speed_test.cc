#include "measure/speed.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/model.h"

namespace lockstep {
namespace {

class SpeedOfGpt2 : public testing::Test {
 protected:
  void SetUp() override {
    auto model = LoadModel(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models/gpt2");
    ASSERT_TRUE(model) << model.error().message;
    model_ = *std::move(model);
    auto engine = Engine::Create(model_.spec, model_.weights, {.threads = 1});
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    limit_ = *PositionLimit(model_.spec);
  }
  Model model_;
  std::unique_ptr<Engine> engine_;
  int64_t limit_ = 0;
};

TEST_F(SpeedOfGpt2, MeasuresWhatFitsAndSaysWhatDoesNot) {
  const auto table = MeasureSpeed(*engine_, model_.spec,
                                  {.prompts = {limit_, 8, limit_ + 1},
                                   .depths = {0, limit_ - 4, limit_ - 3},
                                   .batches = {3},
                                   .steps = 4,
                                   .rounds = 2});
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(table->prefill.size(), 2u);
  EXPECT_EQ(table->prefill[0].size, 8);
  EXPECT_EQ(table->prefill[1].size, limit_);
  ASSERT_EQ(table->decode.size(), 2u);
  EXPECT_EQ(table->decode[1].size, limit_ - 4);
  EXPECT_EQ(table->skipped.size(), 2u);
  ASSERT_EQ(table->batch.size(), 1u);
  EXPECT_GT(table->batch[0].tokens_per_second.min, 0);
  EXPECT_GT(table->batch[0].kv_bytes, table->decode[0].kv_bytes);
  for (const Speed& speed : table->decode) {
    EXPECT_GT(speed.tokens_per_second.min, 0);
    EXPECT_LE(speed.tokens_per_second.min, speed.tokens_per_second.median);
    EXPECT_LE(speed.tokens_per_second.median, speed.tokens_per_second.max);
  }
}

TEST_F(SpeedOfGpt2, StopsWhenToldTo) {
  int calls = 0;
  const auto table = MeasureSpeed(
      *engine_, model_.spec,
      {.depths = {0}, .rounds = 2, .progress = [&](std::string_view, int64_t done, int64_t total) {
         EXPECT_LE(done, total);
         return ++calls < 5;
       }});
  ASSERT_FALSE(table);
  EXPECT_EQ(table.error().code, ErrorCode::kInterrupted);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace lockstep

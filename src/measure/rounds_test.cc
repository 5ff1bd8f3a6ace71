#include "measure/rounds.h"

#include <gtest/gtest.h>

#include "measure/machine_peaks.h"

namespace lockstep {
namespace {

TEST(Rounds, TheMedianDoesNotFollowOneSlowRound) {
  const Spread odd = SpreadOf({5, 1, 100});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 100);
  EXPECT_EQ(SpreadOf({4, 1, 2, 100}).median, 3);
  EXPECT_EQ(SpreadOf({7}).median, 7);
}

// No timing is asserted but what holds on any machine, however loaded: something was measured.
TEST(MachinePeaks, AreMeasured) {
  const MachinePeaks peaks = MeasureMachinePeaks(1);
  EXPECT_GT(peaks.read_bytes, 1e6);
  EXPECT_GT(peaks.int8_ops, 1e6);
  EXPECT_GT(peaks.f32_ops, 1e6);
  EXPECT_GT(peaks.bf16_ops, 1e6);
  EXPECT_FALSE(peaks.int8_how.empty());
  EXPECT_FALSE(peaks.f32_how.empty());
  EXPECT_FALSE(peaks.bf16_how.empty());
}

}  // namespace
}  // namespace lockstep

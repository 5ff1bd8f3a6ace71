#include "audit/rope_tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/rope.h"

namespace lockstep {
namespace {

// A table of so many rows, as the spec wants it.
StoredRopeTable RightTable(const RopeSpec& rope, int64_t rows) {
  const RopeTable right(rope, 0, rows, 1);
  StoredRopeTable table{
      .rows = rows, .half = rope.rotary_dim / 2, .cos = right.cos, .sin = right.sin};
  for (const float f : InverseFrequencies(rope, 1)) table.inverse.push_back(double{f});
  return table;
}

TEST(RopeTables, EveryRowIsCompared) {
  const RopeSpec rope{.theta = 10000, .rotary_dim = 16, .scaling = {}};
  const StoredRopeTable right = RightTable(rope, 8192);
  EXPECT_LT(EarlyError(right, rope, 1), kSameEntry);
  StoredRopeTable ends = right;
  const auto row = [](int64_t r) { return r * 8; };
  std::fill(ends.cos.begin() + row(4200), ends.cos.end(), 0.0F);
  std::fill(ends.sin.begin() + row(4200), ends.sin.end(), 0.0F);
  EXPECT_GT(EarlyError(ends, rope, 1), 0.5);
  StoredRopeTable last = right;
  last.cos[static_cast<size_t>(row(8191))] += 0.1F;
  EXPECT_GT(EarlyError(last, rope, 1), 0.05);
}

}  // namespace
}  // namespace lockstep

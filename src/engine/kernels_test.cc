// Every kernel of every table that runs here against its plain twin, over shapes, tails and extreme
// values.
#include <gtest/gtest.h>

#include "engine/kernel_checks.h"

namespace lockstep {
namespace {

std::vector<const KernelTable*> TablesHere() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : KernelTables())
    if (table->runs_here()) tables.push_back(table);
  return tables;
}

// `check` with some seeds, for every table.
template <typename Check>
void Try(int seeds, Check check) {
  for (const KernelTable* table : TablesHere()) {
    for (int seed = 0; seed < seeds; ++seed) {
      Source source(static_cast<uint64_t>(seed));
      const Problem problem = check(*table, source);
      ASSERT_FALSE(problem) << "seed " << seed << ": " << *problem;
    }
  }
}

TEST(Kernels, Int8TilesAreTheirTwinsAndTheSameInAnyCompany) {
  for (const PackedKindInfo& kind : kPackedKinds)
    if (kind.codes)
      Try(12, [&](const KernelTable& t, Source& s) { return CheckInt8(t, kind.kind, s); });
}

TEST(Kernels, F32TilesAreTheirTwinsAndTheSameInAnyCompany) {
  for (const PackedKindInfo& kind : kPackedKinds)
    Try(12, [&](const KernelTable& t, Source& s) { return CheckF32(t, kind.kind, s); });
}

TEST(Kernels, BF16TilesAreTheirTwinsAndTheSameInAnyCompany) { Try(50, CheckBF16); }

TEST(Kernels, CodesAreTheNearestAndTheSameInEveryTable) { Try(200, CheckQuantize); }

TEST(Kernels, RowsAreTheirTwins) { Try(400, CheckRows); }

TEST(Kernels, AttentionIsSoftmaxInDoublePrecision) {
  Try(400, [](const KernelTable& table, Source& source) {
    const AttentionCase drawn = DrawAttention(source);
    return CheckAttention(table, drawn, source);
  });
}

TEST(Kernels, EveryHeadSizeAndGroupAtThePageBorders) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ16, KvType::kQ8}) {
    for (const int64_t dim : {5, 24, 80, 96, 256}) {
      Try(1, [&](const KernelTable& table, Source& source) -> Problem {
        for (const int64_t first : {62, 63, 64, 126, 127, 128}) {
          AttentionCase c;
          c.shape = {type, 1, dim, dim};
          c.first = first;
          c.heads = 1 + (first + dim) % 9;
          c.queries = 3;
          c.scale = 0.3f;
          if (Problem problem = CheckAttention(table, c, source)) return problem;
        }
        return {};
      });
    }
  }
}

// Scores of any size weigh as softmax does: what is far below the largest, nothing.
TEST(Kernels, AttentionTakesScoresOfAnySize) {
  for (const KernelTable* table : TablesHere()) {
    for (const float size : {1e-30f, 1e3f, 1e10f, 1e30f}) {
      for (const float sign : {1.0f, -1.0f}) {
        Source source(1);
        AttentionCase c;
        c.shape = {KvType::kF32, 1, 4, 16};
        c.first = 69;
        AttentionData data(c, source);
        data.q.assign(data.q.size(), 1);
        for (size_t p = 0; p < data.keys.size(); ++p)  // position 3 has the highest score
          data.keys[p].assign(4, size * (sign * 4 - (p == 3 ? 1.0f : 2.0f)));
        data.Write(*table);
        const std::vector<float> out = data.Run(*table, 0, 1, 0, 1);
        double mean[16] = {};
        for (const auto& value : data.values)
          for (size_t d = 0; d < 16; ++d) mean[d] += value[d] / 70;
        for (size_t d = 0; d < 16; ++d) {
          const double expected = size < 1 ? mean[d] : data.values[3][d];
          EXPECT_NEAR(out[d], expected, 1e-6) << table->name << ", scores of " << sign * size;
        }
      }
    }
  }
}

TEST(Kernels, NoFiniteNumberComesOfNaNOrInfinity) { Try(100, CheckNotFinite); }

TEST(Kernels, NoFiniteAttentionComesOfNaN) {
  Try(400, [](const KernelTable& table, Source& source) {
    const AttentionCase drawn = DrawAttention(source);
    return CheckAttentionNotFinite(table, drawn, source);
  });
}

}  // namespace
}  // namespace lockstep

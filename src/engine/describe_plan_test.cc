#include "engine/describe_plan.h"

#include <gtest/gtest.h>

#include "engine/kernels/kernel_table.h"
#include "model/random_weights.h"
#include "spec/random_spec.h"

namespace lockstep {
namespace {

TEST(PlanParts, CountEveryMatrixOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    const auto owned = RandomWeights(spec, seed);
    const ExecutionPlan plan = PlanLayout(spec, owned->weights);
    int64_t elements = 0, bytes = 0, groups = 0;
    ForEachProjection(plan, [&](std::string_view, const Projection& projection, double) {
      ++groups;
      bytes += static_cast<int64_t>(projection.group.size);
      for (const PackedMatrix& m : projection.group.matrices) elements += m.rows * m.cols;
    });
    for (const PlanPart& part : PlanParts(plan, Activations::kInt8)) {
      EXPECT_GT(part.share, 0);
      EXPECT_LE(part.share, 1);
      if (part.packed == "as stored") continue;
      EXPECT_EQ(part.read_with, "fp32") << "random weights are floats";
      groups -= part.count;
      elements -= part.elements;
      bytes -= part.bytes;
    }
    EXPECT_EQ(groups, 0) << seed;
    EXPECT_EQ(elements, 0) << seed;
    EXPECT_EQ(bytes, 0) << seed;
  }
}

TEST(PlanParts, ALayoutIsThePlanWithoutItsBytes) {
  const ModelSpec spec = RandomSpec(1);
  const auto owned = RandomWeights(spec, 1);
  ThreadPool pool(1);
  const ExecutionPlan layout = PlanLayout(spec, owned->weights);
  const ExecutionPlan plan = MakePlan(spec, owned->weights, pool);
  EXPECT_EQ(layout.packed.size, 0u);
  EXPECT_TRUE(plan.packed_from.file.empty()) << "weights that lie in no file are not kept";
  std::vector<size_t> sizes;
  ForEachProjection(layout, [&](std::string_view, const Projection& projection, double) {
    sizes.push_back(projection.group.size);
    for (const PackedMatrix& m : projection.group.matrices) EXPECT_EQ(m.data, nullptr);
  });
  size_t i = 0;
  ForEachProjection(plan, [&](std::string_view, const Projection& projection, double) {
    EXPECT_EQ(projection.group.size, sizes[i++]);
    for (const PackedMatrix& m : projection.group.matrices) EXPECT_NE(m.data, nullptr);
  });
  EXPECT_EQ(i, sizes.size());
}

}  // namespace
}  // namespace lockstep

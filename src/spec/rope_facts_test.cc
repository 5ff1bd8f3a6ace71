#include "spec/rope_facts.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Two layers, of which the second has this mixer.
ModelSpec With(MixerSpec mixer) {
  ModelSpec spec;
  spec.layers.resize(2);
  spec.layers[0].mixer = ShortConvSpec{.kernel_size = 3};
  spec.layers[1].mixer = std::move(mixer);
  return spec;
}

TEST(RopeFacts, HoldForBothKindsOfAttention) {
  struct Case {
    std::optional<RopeScaling> scaling;
    bool stretches;
    bool depends;
  };
  const Case cases[] = {{{}, false, false},
                        {LinearScaling{2}, false, false},
                        {DynamicScaling{2, 64}, true, true},
                        {YarnScaling{}, false, false},
                        {LongRopeScaling{}, false, true},
                        {FrequencyFactors{}, false, false}};
  for (const Case& c : cases) {
    const RopeSpec rope{.theta = 10000, .rotary_dim = 8, .scaling = c.scaling};
    for (const ModelSpec& spec : {With(AttentionSpec{.rope = rope}), With(MlaSpec{.rope = rope})}) {
      EXPECT_EQ(StretchesWithLength(spec), c.stretches);
      EXPECT_EQ(DependsOnCallLength(spec), c.depends);
    }
  }
}

TEST(RopeFacts, WithoutRopeNothingDependsOnTheLength) {
  EXPECT_FALSE(DependsOnCallLength(With(AttentionSpec{})));
  EXPECT_FALSE(StretchesWithLength(With(AttentionSpec{})));
}

}  // namespace
}  // namespace lockstep

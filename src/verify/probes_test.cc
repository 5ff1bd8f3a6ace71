#include "verify/probes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

ModelSpec SpecOf(std::vector<AttentionSpec> layers) {
  ModelSpec spec;
  for (AttentionSpec& attention : layers) {
    LayerSpec layer;
    layer.mixer = std::move(attention);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

std::vector<int64_t> LengthsOf(const DerivedProbes& probes) {
  std::vector<int64_t> lengths;
  for (const NamedPrompt& prompt : probes.prompts)
    lengths.push_back(static_cast<int64_t>(prompt.ids.size()));
  return lengths;
}

constexpr int32_t kWords[] = {5, 6, 7};

TEST(DerivedProbes, StandOnBothSidesOfEveryWindow) {
  const ModelSpec spec = SpecOf({{.sliding_window = 16}, {}, {.sliding_window = 20}});
  EXPECT_EQ(LengthsOf(DeriveProbes(spec, kWords, 20, 1000)),
            (std::vector<int64_t>{1, 15, 17, 19, 21, 63, 65}));
}

TEST(DerivedProbes, StandOnBothSidesOfTheContextThatARopeWasTrainedOn) {
  const ModelSpec spec =
      SpecOf({{.rope = RopeSpec{
                   .theta = 1e4,
                   .rotary_dim = 8,
                   .scaling = YarnScaling{.factor = 4, .original_max_position_embeddings = 32}}}});
  EXPECT_EQ(LengthsOf(DeriveProbes(spec, kWords, 20, 1000)),
            (std::vector<int64_t>{1, 31, 33, 63, 65}));
}

TEST(DerivedProbes, NeverPassLearnedPositionsAndUseTheLast) {
  ModelSpec spec = SpecOf({{}});
  spec.embedding.positions = LearnedPositions{.num_positions = 80};
  EXPECT_EQ(LengthsOf(DeriveProbes(spec, kWords, 20, 1000)), (std::vector<int64_t>{1, 60}));
}

TEST(DerivedProbes, WhatIsTooLongIsLeftOutAndSaid) {
  const ModelSpec spec = SpecOf({{.sliding_window = 4096}});
  const DerivedProbes probes = DeriveProbes(spec, kWords, 20, 1000);
  EXPECT_EQ(LengthsOf(probes), (std::vector<int64_t>{1, 63, 65}));
  ASSERT_EQ(probes.notes.size(), 2u);
  EXPECT_NE(probes.notes[0].find("--longest 4095"), std::string::npos) << probes.notes[0];
}

TEST(DerivedProbes, AreFilledWithTheGivenIds) {
  const DerivedProbes probes = DeriveProbes(SpecOf({{}}), kWords, 20, 1000);
  EXPECT_EQ(probes.prompts[0].ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(probes.prompts[1].ids[62], kWords[62 % 3]);
}

}  // namespace
}  // namespace lockstep

#include "audit/taps_of.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "audit/audit.h"
#include "spec/taps.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kOnnx = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx";

struct Mapped {
  OnnxModel model;
  std::map<std::string, std::string> taps;

  std::string Operation(Tap tap, int layer = -1) const {
    const auto at = taps.find(TapName(tap, layer));
    return at == taps.end() ? "" : OperationMaking(model, at->second);
  }
};

Mapped Map(const fs::path& checkpoint, const fs::path& candidate) {
  auto reference = LoadModel(checkpoint);
  auto model = OnnxModel::Open(candidate);
  EXPECT_TRUE(reference.has_value() && model.has_value());
  if (!reference || !model) std::abort();
  const auto report = Audit(*reference, *model);
  EXPECT_TRUE(report.has_value());
  if (!report) std::abort();
  auto taps = TapsOf(*model, report->decoder);
  return {*std::move(model), std::move(taps)};
}

// Two builders' graphs of one checkpoint, with norms before and after both halves.
class TapsOfBuilders : public testing::TestWithParam<const char*> {
 protected:
  const Mapped mapped_ = Map(kOnnx / "gemma2/checkpoint", kOnnx / "gemma2" / GetParam());
};
INSTANTIATE_TEST_SUITE_P(TapsOfGemma2, TapsOfBuilders, testing::Values("genai", "mobius"));

TEST_P(TapsOfBuilders, EveryStepOfEveryLayerHasItsValue) {
  for (const int layer : {0, 1})
    for (const Tap tap :
         {Tap::kMixerNorm, Tap::kAttention, Tap::kMixer, Tap::kMixerPostNorm, Tap::kMixerResidual,
          Tap::kMlpNorm, Tap::kGate, Tap::kUp, Tap::kActivation, Tap::kMlp, Tap::kMlpPostNorm})
      EXPECT_TRUE(mapped_.taps.contains(TapName(tap, layer))) << TapName(tap, layer);
  EXPECT_TRUE(mapped_.taps.contains("layers.0.output"));
  for (const char* name : {"embedding", "final_norm", "logits"})
    EXPECT_TRUE(mapped_.taps.contains(name)) << name;
}

TEST_P(TapsOfBuilders, ValuesAreMadeByTheOperationsThatTheTapsDescribe) {
  const auto made_by = [&](Tap tap, int layer, std::string_view op) {
    const std::string found = mapped_.Operation(tap, layer);
    EXPECT_NE(found.substr(0, found.find(' ')).find(op), std::string::npos)
        << TapName(tap, layer) << ": " << found;
  };
  made_by(Tap::kEmbedding, -1, "Mul");  // by the scale, not the Gather before it
  made_by(Tap::kFinalNorm, -1, "Norm");
  made_by(Tap::kLogits, -1, "Mul");  // of the soft cap
  for (const int layer : {0, 1}) {
    made_by(Tap::kMixerNorm, layer, "Norm");
    made_by(Tap::kAttention, layer, "Attention");
    made_by(Tap::kMixer, layer, "MatMul");
    made_by(Tap::kMixerPostNorm, layer, "Norm");
    made_by(Tap::kMixerResidual, layer, "SkipSimplifiedLayerNormalization");  // its fourth output
    made_by(Tap::kMlpNorm, layer, "SkipSimplifiedLayerNormalization");
    made_by(Tap::kGate, layer, "MatMul");
    made_by(Tap::kUp, layer, "MatMul");
    made_by(Tap::kActivation, layer, "Mul");
    made_by(Tap::kMlp, layer, "MatMul");
  }
}

TEST_P(TapsOfBuilders, NoTwoTapsAreOneValue) {
  std::set<std::string> values;
  for (const auto& [name, value] : mapped_.taps) {
    EXPECT_TRUE(ParseTapName(name)) << name;
    EXPECT_TRUE(values.insert(value).second) << name << " and another are " << value;
  }
}

TEST(TapsOf, AnOperatorsOwnRotationDoesNotShow) {
  const Mapped own = Map(kOnnx / "gemma2/checkpoint", kOnnx / "gemma2/genai");
  const Mapped apart = Map(kOnnx / "gemma2/checkpoint", kOnnx / "gemma2/mobius");
  for (const Tap tap : {Tap::kQ, Tap::kK, Tap::kV, Tap::kQRope, Tap::kKRope}) {
    EXPECT_FALSE(own.taps.contains(TapName(tap, 1))) << TapName(tap, 1);
    EXPECT_TRUE(apart.taps.contains(TapName(tap, 1))) << TapName(tap, 1);
  }
  EXPECT_EQ(apart.Operation(Tap::kQRope, 0).substr(0, 15), "RotaryEmbedding");
}

TEST(TapsOf, OperationsAreNamedByTypeAndName) {
  const Mapped mapped = Map(kOnnx / "gemma2/checkpoint", kOnnx / "gemma2/genai");
  EXPECT_EQ(mapped.Operation(Tap::kGate, 1), "MatMul \"/model/layers.1/mlp/gate_proj/MatMul\"");
  EXPECT_EQ(OperationMaking(mapped.model, "input_ids"), "");
  EXPECT_EQ(OperationMaking(mapped.model, "no such value"), "");
}

TEST(TapsOf, OfAnEmptyDecoderThereAreNone) {
  const auto model = OnnxModel::Open(kOnnx / "gemma2/genai");
  ASSERT_TRUE(model);
  EXPECT_TRUE(TapsOf(*model, FoundDecoder{}).empty());
}

}  // namespace
}  // namespace lockstep

#include "cli/examine.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };
const std::filesystem::path kLlama =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/decoders/llama";

// A reference whose logits are off by one way alone.
class WrongByOneWay : public Subject {
 public:
  WrongByOneWay(Subject& right, Passage wrong) : right_(right), wrong_(wrong) {}
  std::string Name() const override { return "wrong by one way"; }
  Abilities Can() const override { return right_.Can(); }
  int64_t vocab_size() const override { return right_.vocab_size(); }
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override {
    LS_TRY(PromptTrace run, right_.Run(probe, progress));
    runs += probe.passage == Passage::kWhole;
    if (probe.passage != wrong_) return run;
    for (auto& [step, row] : run.steps) {
      std::vector<double> values = row.Row(0);
      if (step > 0) values[0] += 0.1;
      row = TraceTensor{row.shape, std::move(values)};
    }
    return run;
  }

  int runs = 0;

 private:
  Subject& right_;
  Passage wrong_;
};

TEST(Examine, WhereOnlyAPassageDiffersNoCauseInTheModelIsLookedFor) {
  ThreadPool pool(1);
  const auto reference = ReferenceSubject::Open(kLlama, pool);
  const auto right = ReferenceSubject::Open(kLlama, pool);
  ASSERT_TRUE(reference && right);
  for (const Passage wrong : (*right)->Can().passages) {
    WrongByOneWay candidate(**right, wrong);
    const auto e = Examine(**reference, reference->get(), candidate, {}, pool, kGoOn);
    ASSERT_TRUE(e) << e.error().message;
    EXPECT_EQ(e->verification.verdict, Verdict::kDiffers) << PassageName(wrong);
    EXPECT_EQ(ExitCodeOf(*e), kExitNo);
    EXPECT_FALSE(e->diagnosis);
    EXPECT_LE(candidate.runs, static_cast<int>(e->verification.prompts.size()) + 2)
        << "the plain prompts once, and the two put again for where it begins";
  }
}

}  // namespace
}  // namespace lockstep

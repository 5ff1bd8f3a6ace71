#include "cli/examine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "base/testing.h"

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

TEST(Examine, AnotherEndOfSequenceStandsBesideNoWordOfPrecisionAlone) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  ThreadPool pool(1);
  const auto reference = Must(ReferenceSubject::Open(kLlama, pool));
  const TestFolder scratch;
  std::filesystem::copy(kLlama / "genai", scratch / "other");
  std::ifstream in(scratch / "other" / "genai_config.json");
  Json config = Json::parse(in);
  in.close();
  config["model"]["eos_token_id"] = 7;
  std::ofstream(scratch / "other" / "genai_config.json") << config.dump();
  const auto told = [&](const std::filesystem::path& folder) {
    const auto alone =
        AuditedAlone(*reference, *reference, folder.string(), Error{.message = "refused"});
    return alone ? alone->verification.sentence : "";
  };
  EXPECT_NE(told(kLlama / "genai").find("what could be compared without running it is right"),
            std::string::npos)
      << told(kLlama / "genai");
  EXPECT_NE(told(scratch / "other").find("audited, not run: what was found is told above"),
            std::string::npos)
      << told(scratch / "other");
}

TEST(Examine, WhatRanIsNotSaidToHaveBeenAuditedAlone) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  ThreadPool pool(1);
  const auto reference = Must(ReferenceSubject::Open(kLlama, pool));
  const auto candidate = Must(OnnxSubject::Open(kLlama / "genai", 1));
  // Its tables end after 96 positions.
  ExamineOptions options;
  options.verify.passages = false;
  options.verify.steps = 1;
  options.verify.prompts = {{.name = "short", .text = {}, .ids = {3, 17, 8}},
                            {.name = "long", .text = {}, .ids = std::vector<int32_t>(120, 5)}};
  const Examination e =
      Must(Examine(*reference, reference.get(), *candidate, options, pool, kGoOn));
  EXPECT_EQ(e.verification.verdict, Verdict::kSubjectFailed) << e.verification.sentence;
  EXPECT_EQ(e.verification.sentence.find("audited, not run"), std::string::npos)
      << e.verification.sentence;
}

}  // namespace
}  // namespace lockstep

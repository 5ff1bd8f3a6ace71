// Exports in fp16 under ONNX Runtime: precision is told as precision, and a fault beside it is
// still the cause that is named. The reference is edited, so that the export is what is wrong.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/examine.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGemma = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/gemma2";
const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };
// What this export's builder did wrong, so that nothing is left but its 16 bits.
const std::string kWindows =
    "layers[0].mixer.sliding_window=null; layers[1].mixer.sliding_window=8";

Result<Examination> ExamineAgainst(const std::string& edit, ThreadPool& pool) {
  LS_TRY(const Edit parsed, ParseEdit(edit));
  LS_TRY(const auto reference, ReferenceSubject::Open(kGemma / "checkpoint", pool,
                                                      ReferenceSubject::Precision::kFloat, parsed));
  LS_TRY(const auto candidate, OnnxSubject::Open(kGemma / "mobius-fp16", 1));
  ExamineOptions options;
  // The model has 32 positions.
  options.verify.prompts = {{.name = "ids", .text = {}, .ids = {3, 17, 8, 29, 11, 5, 23, 38, 14}}};
  options.verify.steps = 12;
  options.verify.longest = 0;
  options.diagnose.systematic = false;
  return Examine(*reference, reference.get(), *candidate, options, pool, kGoOn);
}

TEST(SixteenBits, AreNoFault) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  ThreadPool pool(1);
  const auto examined = ExamineAgainst(kWindows, pool);
  ASSERT_TRUE(examined) << examined.error().message;
  EXPECT_EQ(examined->verification.verdict, Verdict::kPrecision) << examined->verification.sentence;
  EXPECT_NE(examined->verification.sentence.find("the same model in 16 bits"), std::string::npos);
  EXPECT_FALSE(examined->diagnosis);
  EXPECT_EQ(ExitCodeOf(*examined), kExitYes) << examined->verification.sentence;
}

TEST(SixteenBits, HideNoFault) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  ThreadPool pool(1);
  for (const auto& [fault, named] :
       {std::pair{"layers[*].mixer.rope.scaling={\"kind\":\"linear\",\"factor\":8}", ".mixer.rope"},
        {"embedding.scale.value=3.2", "embedding.scale"},
        {"layers[*].mixer.logit_softcap=0.5", ".mixer.logit_softcap"}}) {
    SCOPED_TRACE(fault);
    const auto examined = ExamineAgainst(kWindows + "; " + fault, pool);
    ASSERT_TRUE(examined) << examined.error().message;
    EXPECT_EQ(examined->verification.verdict, Verdict::kDiffers);
    ASSERT_TRUE(examined->diagnosis) << examined->verification.sentence;
    const Diagnosis& d = *examined->diagnosis;
    ASSERT_EQ(d.verdict, DiagnosisVerdict::kExplained) << d.sentence;
    ASSERT_EQ(d.causes.size(), 1u);
    ASSERT_EQ(d.edit.spec.size(), 1u);
    EXPECT_NE(d.edit.spec[0].path.find(named), std::string::npos) << ToString(d.edit);
  }
}

}  // namespace
}  // namespace lockstep

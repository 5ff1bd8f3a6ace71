// A quantized export by a real builder that also has a fault: the reference is edited, so that the
// export is what is wrong. The cause is found and named although activations are rounded on both
// sides, and what it names reproduces.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing.h"
#include "cli/diagnosis_text.h"
#include "cli/examine.h"
#include "formats/onnx_write.h"

namespace lockstep {
namespace {

const std::filesystem::path kLlama =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/decoders/llama";
const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

struct Fault {
  std::string edit;                // of the reference
  std::vector<std::string> found;  // what the edits that explain the export begin with
};

Result<Examination> ExamineAgainst(const Edit& edit, ThreadPool& pool) {
  LS_TRY(const auto reference,
         ReferenceSubject::Open(kLlama, pool, ReferenceSubject::Precision::kFloat, edit));
  LS_TRY(const auto candidate, OnnxSubject::Open(kLlama / "genai-int4", 1));
  ExamineOptions options;
  options.verify.longest = 0;
  options.verify.passages = false;
  options.diagnose.systematic = false;
  return Examine(*reference, reference.get(), *candidate, options, pool, kGoOn);
}

TEST(QuantizedFaults, AreNamedWithTheProofAndReproduced) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  const std::vector<Fault> faults = {
      {"layers[*].mixer.rope.theta=20000", {"layers[*].mixer.rope"}},
      {"layers[*].mixer.sliding_window=4", {"layers[*].mixer.sliding_window"}},
      {"layers[*].mixer.query_scale.value=0.26", {"layers[*].mixer.query_scale"}},
      {"weights: add layers[*].mlp_pre_norm.weight by 1", {"layers[*].mlp_pre_norm.weight_offset"}},
      {"weights: scale layers[1].mixer_pre_norm.weight by 1.01", {}},
      {"layers[*].mixer.rope.theta=20000; layers[*].mixer.sliding_window=4",
       {"layers[*].mixer.rope", "layers[*].mixer.sliding_window"}},
  };
  ThreadPool pool(1);
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.edit);
    const auto edit = ParseEdit(fault.edit);
    ASSERT_TRUE(edit) << edit.error().message;
    const auto examined = ExamineAgainst(*edit, pool);
    ASSERT_TRUE(examined) << examined.error().message;
    EXPECT_EQ(examined->verification.verdict, Verdict::kDiffers);
    EXPECT_NE(examined->verification.sentence.find("its weights are quantized"), std::string::npos);
    EXPECT_NE(examined->base.find("with its int8 rounding"), std::string::npos);
    ASSERT_TRUE(examined->diagnosis);
    const Diagnosis& d = *examined->diagnosis;
    ASSERT_EQ(d.verdict, DiagnosisVerdict::kExplained) << d.sentence;
    EXPECT_GE(d.tolerance, kEmulatedRounding);
    EXPECT_LT(d.after.max_abs, kEmulatedRounding / 10);
    EXPECT_GT(d.before.max_abs, 100 * kEmulatedRounding);
    // Inside as well, the two are equal up to where the fault is.
    ASSERT_TRUE(d.first && d.first->tap);
    EXPECT_EQ(d.first->tap->layer, fault.found.empty() ? 1 : 0);

    ASSERT_EQ(d.causes.size(), std::max<size_t>(1, fault.found.size()));
    for (const std::string& path : fault.found) {
      const auto names = [&](const FieldEdit& field) {
        return field.path == path ||
               "layers[*]" + field.path.substr(field.path.find(']') + 1) == path;
      };
      EXPECT_TRUE(std::any_of(d.edit.spec.begin(), d.edit.spec.end(), names)) << ToString(d.edit);
    }
    if (fault.found.empty()) {
      ASSERT_EQ(d.edit.weights.size(), 1u);
      EXPECT_NEAR(d.edit.weights[0].value, 1 / 1.01, 1e-6);
    }
    EXPECT_NE(DiagnosisText(d, "REFERENCE", "CANDIDATE", examined->base).find("--edit-reference"),
              std::string::npos);

    const auto again = ExamineAgainst(Joined(*edit, d.edit), pool);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->verification.verdict, Verdict::kQuantizedActivations)
        << again->verification.sentence;
    EXPECT_EQ(ExitCodeOf(*again), kExitYes) << again->verification.sentence;
  }
}

// Codes that are not the checkpoint's: what the audit found is the cause, with the proof that the
// reference with them gives the export's logits.
TEST(QuantizedFaults, FaultyCodesAreTheCauseThatTheAuditNamed) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  const auto model = OnnxModel::Open(kLlama / "genai-int4");
  ASSERT_TRUE(model);
  OnnxPatch patch;
  for (const OnnxNode& node : model->nodes()) {
    const OnnxTensor* codes =
        node.op_type == "MatMulNBits" ? model->Tensor(node.Input(1)) : nullptr;
    if (codes == nullptr) continue;
    std::vector<std::byte> swapped(codes->bytes.begin(), codes->bytes.end());
    for (std::byte& both : swapped) both = both << 4 | both >> 4;
    patch.tensors.push_back({.name = codes->name, .bytes = std::move(swapped)});
    break;
  }
  ASSERT_EQ(patch.tensors.size(), 1U);
  const TestFolder scratch;
  ASSERT_TRUE(WriteOnnx(*model, patch, scratch / "faulty"));
  ThreadPool pool(1);
  const auto reference = ReferenceSubject::Open(kLlama, pool);
  const auto candidate = OnnxSubject::Open(scratch / "faulty", 1);
  ASSERT_TRUE(reference && candidate);
  ExamineOptions options;
  options.verify.longest = 0;
  options.verify.passages = false;
  options.diagnose.systematic = false;
  const auto examined = Examine(**reference, reference->get(), **candidate, options, pool, kGoOn);
  ASSERT_TRUE(examined) << examined.error().message;
  EXPECT_EQ(examined->verification.verdict, Verdict::kDiffers);
  ASSERT_TRUE(examined->diagnosis);
  const Diagnosis& d = *examined->diagnosis;
  ASSERT_EQ(d.verdict, DiagnosisVerdict::kExplained) << d.sentence;
  ASSERT_EQ(d.causes.size(), 1U);
  EXPECT_EQ(d.causes[0].hypothesis.origin, Origin::kAudit);
  EXPECT_NE(d.causes[0].hypothesis.sentence.find("holds other numbers"), std::string::npos)
      << d.causes[0].hypothesis.sentence;
  EXPECT_LT(d.after.max_abs, kEmulatedRounding);
  EXPECT_GT(d.before.max_abs, 100 * kEmulatedRounding);
  // No edit of the reference says these numbers.
  EXPECT_EQ(DiagnosisText(d, "REFERENCE", "CANDIDATE", examined->base).find("--edit-reference"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep

// Exported decoders against what they were exported of: audited without running, and under ONNX
// Runtime where it is installed, against transformers' recordings and, for specs that no model has,
// against the reference.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "audit/audit.h"
#include "audit/candidate_weights.h"
#include "base/testing.h"
#include "export/genai/export_genai.h"
#include "export/output_folder.h"
#include "model/random_weights.h"
#include "ort/ort_runtime.h"
#include "spec/fields.h"
#include "spec/random_spec.h"
#include "spec/validate.h"
#include "subjects/onnx_subject.h"
#include "subjects/open_subject.h"
#include "subjects/reference_subject.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

ThreadPool& Pool() {
  static ThreadPool pool(2);
  return pool;
}

bool HaveRuntime() {
  static const bool have = OrtRuntime::Load().has_value();
  return have;
}

ExportReport Export(const Model& model, const fs::path& folder, const ExportOptions& options = {}) {
  fs::create_directories(folder);
  return Must(ExportGenAi(model, options, folder, nullptr, Pool(), nullptr));
}

std::string BytesOf(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> Checkpoints() {
  std::vector<std::string> out;
  const fs::path goldens(LOCKSTEP_GOLDENS);
  const fs::path folder =
      (goldens.empty() ? fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" : goldens) / "models";
  for (const auto& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "config.json")) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

class ExportedCheckpoint : public testing::TestWithParam<std::string> {};

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = fs::path(info.param).filename().string();
  for (char& c : name)
    if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Golden, ExportedCheckpoint, testing::ValuesIn(Checkpoints()), NameOf);

TEST_P(ExportedCheckpoint, IsFoundHealthyByTheAudit) {
  const TestFolder scratch;
  const Model model = Must(LoadModel(fs::path(GetParam())));
  Export(model, scratch.path());
  const AuditReport report = Must(Audit(model, Must(OnnxModel::Open(scratch.path()))));
  for (const Finding& finding : report.findings) ADD_FAILURE() << finding.sentence;
  // Every weight has a place in the graph that is known.
  for (const auto& [id, weight] : report.weights)
    EXPECT_EQ(weight.state, WeightState::kEqual)
        << ToString(id) << ": " << WeightStateName(weight.state);
}

TEST_P(ExportedCheckpoint, GivesTransformersLogitsUnderOnnxRuntime) {
  if (!HaveRuntime()) GTEST_SKIP() << "ONNX Runtime is not installed";
  const TestFolder scratch;
  Export(Must(LoadModel(fs::path(GetParam()))), scratch.path());
  const auto exported = Must(OnnxSubject::Open(scratch.path(), 1));
  const auto golden = Must(OpenSubject((fs::path(GetParam()) / "golden.safetensors").string(),
                                       Pool(), {}, std::chrono::seconds(60)));
  const Verification verification = Must(Verify(*golden, *exported, {}, kGoOn));
  EXPECT_EQ(verification.verdict, Verdict::kMatch) << verification.sentence;
}

// Every matrix is found as codes and is the checkpoint's but for their coarseness; the head of a
// tied model and its embedding are one initializer.
TEST_P(ExportedCheckpoint, IsFoundHealthyByTheAuditInCodes) {
  for (const bool asymmetric : {false, true})
    for (const char* precision : {"int4", "int8"}) {
      SCOPED_TRACE(fmt::format("{}{}", precision, asymmetric ? " with zero points" : ""));
      const TestFolder scratch;
      const Model model = Must(LoadModel(fs::path(GetParam())));
      ExportOptions options{.precision = precision};
      options.codes.asymmetric = asymmetric;
      Export(model, scratch.path(), options);
      const OnnxModel onnx = Must(OnnxModel::Open(scratch.path()));
      const AuditReport report = Must(Audit(model, onnx));
      for (const Finding& finding : report.findings)
        if (finding.kind != FindingKind::kQuantized) ADD_FAILURE() << finding.sentence;
      int64_t codes = 0;
      for (const auto& [id, weight] : report.weights) {
        EXPECT_TRUE(weight.state != WeightState::kMissing && weight.state != WeightState::kNotFound)
            << ToString(id);
        codes += weight.state == WeightState::kQuantized;
      }
      EXPECT_GT(codes, 0);
    }
}

TEST_P(ExportedCheckpoint, GivesTheLogitsOfItsOwnCodesWhereActivationsAreNotRounded) {
  if (!HaveRuntime()) GTEST_SKIP() << "ONNX Runtime is not installed";
  const TestFolder scratch;
  const Model model = Must(LoadModel(fs::path(GetParam())));
  ExportOptions options{.precision = "int4"};
  options.codes.accuracy_level = 0;
  Export(model, scratch.path(), options);
  const auto exported = Must(OnnxSubject::Open(scratch.path(), 1));
  const AuditReport report = Must(Audit(model, exported->model()));
  const CandidateWeights weights = Must(WithWeightsOf(model, exported->model(), report));
  EXPECT_TRUE(weights.rounds.empty());
  const auto reference = ReferenceSubject::Create(weights.model, {}, Pool());
  const Verification verification = Must(Verify(*reference, *exported, {}, kGoOn));
  EXPECT_EQ(verification.verdict, Verdict::kMatch) << verification.sentence;
}

TEST(Export, TheSameModelGivesTheSameBytes) {
  const TestFolder scratch;
  const Model model = Must(LoadModel(fs::path(Checkpoints().front())));
  Export(model, scratch.path() / "a");
  Export(model, scratch.path() / "b");
  for (const char* name : {"model.onnx", "model.onnx.data", "genai_config.json"}) {
    const std::string a = BytesOf(scratch.path() / "a" / name);
    EXPECT_FALSE(a.empty()) << name;
    EXPECT_EQ(a, BytesOf(scratch.path() / "b" / name)) << name;
  }
}

// The largest number that a layer gives for a short prompt.
double LargestOutput(ReferenceSubject& reference) {
  Probe probe{.name = "outputs", .ids = {1, 2, 3, 4, 5}, .steps = 1};
  for (size_t i = 0; i < reference.spec()->layers.size(); ++i)
    probe.taps.push_back({Tap::kOutput, static_cast<int>(i)});
  const PromptTrace trace = Must(reference.Run(probe, kGoOn));
  EXPECT_EQ(trace.taps.size(), reference.spec()->layers.size());
  double largest = 0;
  for (const auto& [name, tensor] : trace.taps)
    for (int64_t row = 0; row < tensor.num_rows(); ++row)
      for (const double x : tensor.Row(row)) largest = std::max(largest, std::abs(x));
  return largest;
}

// Every combination of facts that a spec can hold, not only those that some model has.
TEST(Export, SpecsThatNoModelHasGiveTheReferencesLogits) {
  if (!HaveRuntime()) GTEST_SKIP() << "ONNX Runtime is not installed";
  int overflow = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    ASSERT_TRUE(Validate(spec)) << seed;
    const auto owned = RandomWeights(spec, seed);
    Model model{.spec = spec, .weights = owned->weights};
    const TestFolder scratch;
    Export(model, scratch.path());
    const auto reference = ReferenceSubject::Create(model, {}, Pool());
    // Without norms activations grow from layer to layer; fp32 does not hold such squares, and the
    // reference sums them in double.
    if (LargestOutput(*reference) > 1e15) {
      ++overflow;
      continue;
    }
    auto exported = OnnxSubject::Open(scratch.path(), 1);
    ASSERT_TRUE(exported) << seed << ": " << exported.error().message << "\n" << Describe(spec);
    VerifyOptions options;
    options.longest = 40;
    options.steps = 6;
    const Verification verification = Must(Verify(*reference, **exported, options, kGoOn));
    // Weights that were not trained make some prompts much noisier than others: all of them are
    // measured by the noisiest.
    double noise = 0, worst = 0;
    for (const PromptComparison& prompt : verification.prompts) {
      noise = std::max(noise, prompt.tolerance);
      worst = std::max(worst, prompt.max_abs());
      EXPECT_NE(prompt.verdict, Verdict::kSubjectFailed) << seed << ": " << prompt.sentence;
    }
    EXPECT_FALSE(verification.prompts.empty());
    EXPECT_LE(worst, noise) << seed << ": " << verification.sentence << "\n" << Describe(spec);
  }
  EXPECT_LE(overflow, 3);
}

}  // namespace
}  // namespace lockstep

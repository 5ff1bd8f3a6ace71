// Exports in fp16 under ONNX Runtime: precision is told as precision, and a fault beside it is
// still the cause that is named. The reference is edited, so that the export is what is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/testing.h"
#include "cli/examine.h"
#include "formats/onnx_write.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGemma = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/gemma2";
const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };
// What this export's builder did wrong, so that nothing is left but its 16 bits.
const std::string kWindows =
    "layers[0].mixer.sliding_window=null; layers[1].mixer.sliding_window=8";

Result<Examination> ExamineAgainst(const std::string& edit, ThreadPool& pool,
                                   const fs::path& export_folder = kGemma / "mobius-fp16") {
  LS_TRY(const Edit parsed, ParseEdit(edit));
  LS_TRY(const auto reference, ReferenceSubject::Open(kGemma / "checkpoint", pool,
                                                      ReferenceSubject::Precision::kFloat, parsed));
  LS_TRY(const auto candidate, OnnxSubject::Open(export_folder, 1));
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

size_t NodeThatReads(const OnnxModel& model, std::string_view op, std::string_view part) {
  for (const OnnxNode& node : model.nodes())
    if (node.op_type == op && node.Input(1).find(part) != std::string_view::npos) return node.index;
  ADD_FAILURE() << op << " " << part;
  return 1;
}

void AddConstant(OnnxPatch& patch, size_t after, std::string name, OnnxType type,
                 std::vector<int64_t> dims, std::vector<std::byte> bytes) {
  patch.nodes.push_back({.after = after,
                         .op_type = "Constant",
                         .outputs = {std::move(name)},
                         .value = OnnxPatch::Node::Value{type, std::move(dims), std::move(bytes)}});
}

// One matrix product in fp16, a Cast on either side.
void AddIsland(const OnnxModel& model, OnnxPatch& patch) {
  const size_t node = NodeThatReads(model, "MatMul", "layers.1.mlp.down_proj");
  const OnnxNode& product = model.nodes()[node];
  const OnnxTensor& matrix = *model.Tensor(product.Input(1));
  AddConstant(patch, node - 1, "island_matrix", OnnxType::kFloat16, matrix.dims,
              Must(EncodeNumbers(Must(ReadDoubles(matrix)), OnnxType::kFloat16)));
  patch.nodes.push_back({.after = node - 1,
                         .op_type = "Cast",
                         .inputs = {std::string(product.Input(0))},
                         .outputs = {"island_in"},
                         .attributes = {{"to", static_cast<int64_t>(OnnxType::kFloat16)}}});
  patch.inputs.push_back({.node = node, .slot = 0, .value = "island_in"});
  patch.inputs.push_back({.node = node, .slot = 1, .value = "island_matrix"});
  patch.results.push_back({.node = node, .slot = 0, .value = "island_out"});
  patch.nodes.push_back({.after = node,
                         .op_type = "Cast",
                         .inputs = {"island_out"},
                         .outputs = {product.outputs[0]},
                         .attributes = {{"to", static_cast<int64_t>(OnnxType::kFloat)}}});
}

// Every second number 0.3 % up, the others as much down, behind a layer's attention.
void AddWobble(const OnnxModel& model, OnnxPatch& patch) {
  const size_t node = NodeThatReads(model, "MatMul", "layers.0.attn.o_proj");
  const OnnxNode& product = model.nodes()[node];
  std::vector<double> factors(static_cast<size_t>(model.Tensor(product.Input(1))->dims[1]));
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = i % 2 == 0 ? 1.003 : 0.997;
  AddConstant(patch, node - 1, "wobble", OnnxType::kFloat, {static_cast<int64_t>(factors.size())},
              Must(EncodeNumbers(factors, OnnxType::kFloat)));
  patch.results.push_back({.node = node, .slot = 0, .value = "before_wobble"});
  patch.nodes.push_back({.after = node,
                         .op_type = "Mul",
                         .inputs = {"before_wobble", "wobble"},
                         .outputs = {product.outputs[0]}});
}

TEST(SixteenBits, OfOneOperatorMakeNoGraphInSixteenBits) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  const fs::path llama = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/decoders/llama";
  const OnnxModel model = Must(OnnxModel::Open(llama / "genai"));
  OnnxPatch patch;
  AddIsland(model, patch);
  AddWobble(model, patch);
  const TestFolder scratch;
  ASSERT_TRUE(WriteOnnx(model, patch, scratch / "island"));
  ThreadPool pool(1);
  const auto reference = Must(ReferenceSubject::Open(llama, pool));
  const auto candidate = Must(OnnxSubject::Open(scratch / "island", 1));
  ExamineOptions options;
  options.verify.longest = 0;
  options.verify.passages = false;
  options.diagnoses = false;
  const Examination examined =
      Must(Examine(*reference, reference.get(), *candidate, options, pool, kGoOn));
  const Verification& v = examined.verification;
  EXPECT_EQ(v.verdict, Verdict::kDiffers) << v.sentence;
  EXPECT_EQ(ExitCodeOf(examined), kExitNo);
  EXPECT_TRUE(std::ranges::any_of(v.notes, [](const std::string& note) {
    return note.starts_with("1 of 13 matrix products are in fp16");
  })) << fmt::format("{}", fmt::join(v.notes, "\n"));
}

// One matrix as 8-bit codes, its scales in fp16.
TEST(SixteenBits, OfActivationsHideNoQuantizedWeights) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "mobius-fp16"));
  const size_t node = NodeThatReads(model, "MatMul", "layers.0.mlp.gate_proj");
  const OnnxTensor& matrix = *model.Tensor(model.nodes()[node].Input(1));
  const std::vector<double> numbers = Must(ReadDoubles(matrix));
  const auto outputs = static_cast<size_t>(matrix.dims[1]);
  std::vector<double> scales(outputs);
  for (size_t i = 0; i < numbers.size(); ++i)
    scales[i % outputs] = std::max(scales[i % outputs], std::abs(numbers[i]) / 120);
  const std::vector<std::byte> halves = Must(EncodeNumbers(scales, OnnxType::kFloat16));
  std::vector<std::byte> codes;
  for (size_t i = 0; i < numbers.size(); ++i)
    codes.push_back(static_cast<std::byte>(
        static_cast<int8_t>(std::nearbyint(numbers[i] / scales[i % outputs]))));
  OnnxPatch patch;
  AddConstant(patch, node - 1, "codes", OnnxType::kInt8, matrix.dims, codes);
  AddConstant(patch, node - 1, "scales", OnnxType::kFloat16, {matrix.dims[1]}, halves);
  patch.nodes.push_back({.after = node - 1,
                         .op_type = "DequantizeLinear",
                         .inputs = {"codes", "scales"},
                         .outputs = {"numbers"},
                         .attributes = {{"axis", 1}}});
  patch.inputs.push_back({.node = node, .slot = 1, .value = "numbers"});
  const TestFolder scratch;
  ASSERT_TRUE(WriteOnnx(model, patch, scratch / "codes"));
  ThreadPool pool(1);
  const auto examined = ExamineAgainst(kWindows, pool, scratch / "codes");
  ASSERT_TRUE(examined) << examined.error().message;
  const Verification& v = examined->verification;
  EXPECT_EQ(v.verdict, Verdict::kQuantizedWeights) << v.sentence;
  EXPECT_NE(v.sentence.find("the same model with weights in fewer bits, and in 16 bits"),
            std::string::npos)
      << v.sentence;
  EXPECT_NE(v.sentence.find("on the checkpoint's weights"), std::string::npos) << v.sentence;
}

}  // namespace
}  // namespace lockstep

// Quantized exports by a real builder against the reference on their own codes: all is equal to
// float noise along whole prompts and greedy steps, and what is wrong with a graph stays visible.
#include "cli/own_codes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "cli/examine.h"
#include "cli/rounded_reference.h"
#include "verify/caching_subject.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = LOCKSTEP_GOLDENS;
const fs::path kLlama = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/decoders/llama";
const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

bool HaveRuntime() { return OrtRuntime::Load().has_value(); }

struct Export {
  fs::path checkpoint, onnx;
};

std::vector<Export> Exports() {
  std::vector<Export> out = {{kLlama, kLlama / "genai-int4"}};
  const fs::path exports = kGoldens.parent_path() / "exports/genai-0.18";
  std::error_code none;
  if (kGoldens.empty() || !fs::is_directory(exports, none)) return out;
  for (const char* name : {"llama", "lfm2-moe"})
    out.push_back({kGoldens / "models" / name, exports / fmt::format("{}@int4", name)});
  out.push_back({kGoldens / "models/qwen3", exports / "qwen3@int8"});
  return out;
}

struct Residual {
  double max_abs = 0;  // over all positions of all prompts and all steps
  TieCount ties;
  double moved = 0;
};

// On the recorded prompts. A graph at fault is fed no more than its own greedy tokens, and its
// steps count as long as both choose the same.
std::optional<Residual> ResidualOf(const Export& e) {
  ThreadPool pool(1);
  const auto reference = LoadModel(e.checkpoint);
  auto onnx = OnnxSubject::Open(e.onnx, 1);
  const auto golden = ReadTrace(e.checkpoint / "golden.safetensors");
  EXPECT_TRUE(reference && onnx && golden);
  if (!reference || !onnx || !golden) return std::nullopt;
  const auto report = Audit(*reference, (*onnx)->model());
  auto weights = report ? WithWeightsOf(*reference, (*onnx)->model(), *report)
                        : Result<CandidateWeights>(tl::unexpected(report.error()));
  EXPECT_TRUE(weights);
  if (!weights) return std::nullopt;
  const auto subject = ReferenceSubject::Create(weights->model, {}, pool);
  CachingSubject candidate(**onnx);
  RoundedReference rounded(weights->rounds, *subject, candidate, **onnx);
  Residual out;
  for (const PromptTrace& prompt : golden->prompts) {
    Probe probe{.name = prompt.name, .ids = prompt.ids, .all_positions = true};
    const auto ours = rounded.Run(probe, kGoOn), theirs = candidate.Run(probe, kGoOn);
    EXPECT_TRUE(ours && theirs && ours->logits && theirs->logits);
    if (!ours || !theirs || !ours->logits || !theirs->logits) return std::nullopt;
    for (int64_t r = 0; r < ours->logits->num_rows(); ++r)
      out.max_abs =
          std::max(out.max_abs, MaxAbsDifference(ours->logits->Row(r), theirs->logits->Row(r)));
    const PromptComparison compared = CompareRuns(*ours, *theirs, probe.steps);
    out.max_abs = std::max(out.max_abs, compared.max_abs());
  }
  EXPECT_TRUE(rounded.Notes().empty());
  out.ties = rounded.ties();
  out.moved = rounded.moved();
  return out;
}

TEST(OwnCodes, TheReferenceThatRoundsAsTheGraphDoesGivesItsLogitsEverywhere) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const Export& e : Exports()) {
    const auto residual = ResidualOf(e);
    ASSERT_TRUE(residual);
    EXPECT_LT(residual->max_abs, kEmulatedRounding) << e.onnx;
    EXPECT_GT(residual->ties.numbers, 10'000) << e.onnx;
    EXPECT_EQ(residual->ties.others, 0) << e.onnx;
    // The bound has room: no number lies near it.
    EXPECT_LT(residual->ties.furthest, kTieSteps / 5) << e.onnx;
    // The activations are those of the graph itself.
    EXPECT_EQ(residual->moved, 0) << e.onnx;
  }
}

// A number between two codes may fall otherwise in a call of another length: it is asked there.
TEST(OwnCodes, TheSameHoldsByEveryWayOfFillingTheCache) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const Export& e : Exports()) {
    ThreadPool pool(1);
    const auto reference = LoadModel(e.checkpoint);
    auto onnx = OnnxSubject::Open(e.onnx, 1);
    const auto golden = ReadTrace(e.checkpoint / "golden.safetensors");
    ASSERT_TRUE(reference && onnx && golden);
    const auto report = Audit(*reference, (*onnx)->model());
    ASSERT_TRUE(report);
    const auto weights = WithWeightsOf(*reference, (*onnx)->model(), *report);
    ASSERT_TRUE(weights);
    const auto subject = ReferenceSubject::Create(weights->model, {}, pool);
    RoundedReference rounded(weights->rounds, *subject, **onnx, **onnx);
    const std::vector<int32_t>& ids = golden->prompts.front().ids;
    const auto count = static_cast<int64_t>(ids.size());
    ASSERT_GT(count, 2);
    for (const Passage passage : (*onnx)->Can().passages) {
      Probe probe{.name = "by another way", .ids = ids, .steps = 3, .passage = passage};
      if (passage == Passage::kChunked)
        probe.parts = {1, count - 1};
      else
        probe.other = {3, 2, 1};
      const auto passed = rounded.RunPassage(probe, kGoOn);
      ASSERT_TRUE(passed) << passed.error().message;
      const PromptComparison compared =
          CompareRuns(passed->reference, passed->candidate, probe.steps);
      EXPECT_EQ(compared.greedy_compared, 3);
      EXPECT_LT(compared.max_abs(), kEmulatedRounding) << e.onnx << " " << compared.sentence;
    }
  }
}

TEST(OwnCodes, VerifySaysSoWithItsNumbers) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const Export& e : Exports()) {
    ThreadPool pool(1);
    auto reference = ReferenceSubject::Open(e.checkpoint, pool);
    auto candidate = OnnxSubject::Open(e.onnx, 1);
    ASSERT_TRUE(reference && candidate);
    const auto examined = Examine(**reference, reference->get(), **candidate, {}, pool, kGoOn);
    ASSERT_TRUE(examined) << examined.error().message;
    const Verification& v = examined->verification;
    EXPECT_EQ(v.verdict, Verdict::kQuantizedActivations) << e.onnx;
    EXPECT_FALSE(examined->diagnosis);
    ASSERT_TRUE(examined->own_codes && examined->own_codes->rounded);
    const OwnCodes& own = *examined->own_codes;
    EXPECT_LT(*own.rounded, kEmulatedRounding) << e.onnx;
    EXPECT_GT(own.plain, 100 * kEmulatedRounding);
    EXPECT_NE(v.sentence.find(fmt::format("of {} activations {} lay between two codes within "
                                          "float noise",
                                          own.ties.numbers, own.ties.ties)),
              std::string::npos)
        << v.sentence;
    const Json json = ToJson(own);
    EXPECT_EQ(json["rounded"]["ties"], own.ties.ties);
    EXPECT_EQ(json["rounded"]["max_abs"], *own.rounded);
  }
}

std::vector<std::byte> Scaled(const OnnxTensor& tensor, double factor) {
  auto numbers = ReadDoubles(tensor);
  EXPECT_TRUE(numbers);
  for (double& x : *numbers) x *= factor;
  auto bytes = EncodeNumbers(*numbers, tensor.type);
  EXPECT_TRUE(bytes);
  return *std::move(bytes);
}

const OnnxNode* First(const OnnxModel& model, std::string_view op) {
  for (const OnnxNode& node : model.nodes())
    if (node.op_type == op) return &node;
  ADD_FAILURE() << op;
  return nullptr;
}

struct Broken {
  std::string_view what;
  OnnxPatch patch;
};

std::vector<Broken> BrokenGraphs(const OnnxModel& model) {
  std::vector<Broken> out;
  const OnnxNode* attention = First(model, "GroupQueryAttention");
  const OnnxNode* norm = First(model, "SkipSimplifiedLayerNormalization");
  const OnnxNode* product = First(model, "MatMulNBits");
  if (attention == nullptr || norm == nullptr || product == nullptr) return out;
  const float scale = attention->Float("scale").value_or(0);
  EXPECT_GT(scale, 0);
  out.push_back({"the attention's scale is 2 % off",
                 {.attributes = {{attention->index, "scale", scale * 1.02f}}}});
  out.push_back({"a window where none is",
                 {.attributes = {{attention->index, "local_window_size", int64_t{4}}}}});
  const OnnxTensor* weight = model.Tensor(norm->Input(2));
  if (weight != nullptr)
    out.push_back({"a norm's weight is 0.2 % off",
                   {.tensors = {{.name = weight->name, .bytes = Scaled(*weight, 1.002)}}}});
  const OnnxTensor* scales = model.Tensor(product->Input(2));
  for (const double factor : {1.1, 1.03})
    if (scales != nullptr)
      out.push_back({factor > 1.05 ? "the scales of a matrix are 10 % off" : "they are 3 % off",
                     {.tensors = {{.name = scales->name, .bytes = Scaled(*scales, factor)}}}});
  // As if the checkpoint's bias had been dropped: one side adds a vector that the other lacks.
  const int64_t rows = product->Int("N").value_or(0);
  const std::vector<double> bias(static_cast<size_t>(rows), 0.05);
  const auto bytes = EncodeNumbers(bias, OnnxType::kFloat);
  EXPECT_TRUE(bytes && rows > 0);
  OnnxPatch added{.results = {{product->index, 0, "before the bias"}}};
  added.nodes.push_back({.after = product->index,
                         .op_type = "Constant",
                         .outputs = {"the bias"},
                         .value = OnnxPatch::Node::Value{OnnxType::kFloat, {rows}, *bytes}});
  added.nodes.push_back({.after = product->index,
                         .op_type = "Add",
                         .inputs = {"before the bias", "the bias"},
                         .outputs = {product->outputs[0]}});
  out.push_back({"a bias that only one side has", std::move(added)});
  return out;
}

TEST(OwnCodes, NoFaultHidesBehindTies) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const Export& e : Exports()) {
    if (e.checkpoint.filename() != "llama") continue;
    const auto model = OnnxModel::Open(e.onnx);
    ASSERT_TRUE(model);
    const std::vector<Broken> graphs = BrokenGraphs(*model);
    EXPECT_EQ(graphs.size(), 6u);
    for (const Broken& broken : graphs) {
      SCOPED_TRACE(broken.what);
      const fs::path out = fs::temp_directory_path() / fmt::format("own-codes-{}", getpid());
      ASSERT_TRUE(WriteOnnx(*model, broken.patch, out));
      const auto residual = ResidualOf({e.checkpoint, out});
      std::error_code ignored;
      fs::remove_all(out, ignored);
      ASSERT_TRUE(residual);
      EXPECT_GT(residual->max_abs, 50 * kEmulatedRounding);
    }
  }
}

}  // namespace
}  // namespace lockstep

// The values inside exported decoders against the reference's own: sound graphs agree at every tap,
// and of those with a fault the first tap that differs is the one that the fault is in.
#include "cli/onnx_taps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "audit/audit.h"
#include "base/testing.h"
#include "cli/examine.h"
#include "formats/onnx_write.h"
#include "verify/bisect.h"
#include "verify/probes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = LOCKSTEP_GOLDENS;
const fs::path kOnnx = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx";
const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

TraceTensor Counted(std::vector<int64_t> shape) {
  TraceTensor out{std::move(shape), std::vector<float>{}};
  auto& values = std::get<std::vector<float>>(out.values);
  for (int64_t i = 0; i < out.elements(); ++i) values.push_back(static_cast<float>(i));
  return out;
}

TEST(RowsOfTokens, TokensComeFirst) {
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{1, 3, 4}, {3, 4}, {1, 3, 2, 2}, {6, 2}, {1, 6, 2}}) {
    const auto rows = RowsOfTokens(Counted(shape), 3);
    ASSERT_TRUE(rows);
    EXPECT_EQ(rows->shape, (std::vector<int64_t>{3, 4}));
    EXPECT_EQ(rows->Row(1), (std::vector<double>{4, 5, 6, 7}));
  }
}

TEST(RowsOfTokens, HeadsInFrontGoBehindTheTokens) {
  const auto rows = RowsOfTokens(Counted({1, 2, 3, 2}), 3);  // head 1 begins at 6
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->Row(0), (std::vector<double>{0, 1, 6, 7}));
  EXPECT_EQ(rows->Row(2), (std::vector<double>{4, 5, 10, 11}));
}

TEST(RowsOfTokens, WhatDoesNotSayWhereTheTokensAreIsLeftOut) {
  EXPECT_FALSE(RowsOfTokens(Counted({1, 3, 3, 2}), 3));  // three heads of three tokens
  EXPECT_FALSE(RowsOfTokens(Counted({1, 1, 4}), 3));     // the last token alone
  EXPECT_FALSE(RowsOfTokens(Counted({2, 6}), 3));
  EXPECT_FALSE(RowsOfTokens(Counted({12}), 3));
  EXPECT_FALSE(RowsOfTokens(Counted({0, 4}), 3));
}

struct Sides {
  Model reference;
  std::unique_ptr<OnnxSubject> candidate;
  AuditReport report;
};

std::optional<Sides> Open(const fs::path& checkpoint, const fs::path& onnx) {
  auto reference = LoadModel(checkpoint);
  auto candidate = OnnxSubject::Open(onnx, 1);
  if (!reference || !candidate) {
    ADD_FAILURE() << (reference ? candidate.error() : reference.error()).message;
    return std::nullopt;
  }
  auto report = Audit(*reference, (*candidate)->model());
  if (!report) {
    ADD_FAILURE() << report.error().message;
    return std::nullopt;
  }
  return Sides{*std::move(reference), *std::move(candidate), *std::move(report)};
}

std::vector<NamedPrompt> PromptsFor(const ModelSpec& spec) {
  auto prompts = BuiltInIds(spec.embedding.vocab_size);
  const auto derived = DeriveProbes(spec, prompts.front().ids, 4, 100);
  prompts.insert(prompts.end(), derived.prompts.begin(), derived.prompts.end());
  std::erase_if(prompts, [](const NamedPrompt& p) { return p.ids.size() < 2; });
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](auto& a, auto& b) { return a.ids.size() < b.ids.size(); });
  return prompts;
}

// The first tap that differs on the shortest prompt where one does.
struct Place {
  std::string tap, operation;
};
Place FirstPlace(const Sides& sides) {
  ThreadPool pool(1);
  for (const NamedPrompt& prompt : PromptsFor(sides.reference.spec)) {
    OnnxTaps taps(*sides.candidate, sides.report.decoder);
    const auto given =
        sides.candidate->Run({.name = prompt.name, .ids = prompt.ids, .steps = 1}, kGoOn);
    if (!given) return {given.error().message, ""};
    PromptTrace run = *given;
    EXPECT_TRUE(taps.AddTo(run, sides.reference, pool, kGoOn));
    for (const std::string& note : taps.notes()) ADD_FAILURE() << note;
    EXPECT_GT(run.taps.size(), sides.reference.spec.layers.size());
    const auto first = FirstDifferentTap(sides.reference, std::span(&run, 1), pool);
    if (!first) return {first.error().message, ""};
    const std::optional<TapPlace> place = *first;
    if (place) return {TapName(place->tap, place->layer), taps.OperationAt(*place)};
  }
  return {};
}

bool HaveRuntime() {
  static const bool have = OrtRuntime::Load().has_value();
  return have;
}

// checkpoint, export
std::vector<std::pair<fs::path, fs::path>> Sound() {
  std::vector<std::pair<fs::path, fs::path>> out = {
      {kOnnx / "decoders/llama", kOnnx / "decoders/llama/genai"}};
  if (kGoldens.empty()) return out;
  for (const char* name : {"genai-0.18/llama", "genai-0.18/qwen2", "genai-0.18/qwen3",
                           "genai-0.18/granite", "genai-0.18/lfm2-moe", "mobius-0.1/gpt2",
                           "mobius-0.1/mixtral", "mobius-0.1/phi3", "mobius-0.1/smollm3"})
    out.emplace_back(kGoldens / "models" / fs::path(name).filename(),
                     kGoldens.parent_path() / "exports" / name);
  return out;
}

TEST(OnnxTaps, ASoundExportAgreesAtEveryTap) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const auto& [checkpoint, onnx] : Sound()) {
    SCOPED_TRACE(onnx.string());
    const auto sides = Open(checkpoint, onnx);
    ASSERT_TRUE(sides);
    EXPECT_EQ(FirstPlace(*sides).tap, "");
  }
}

TEST(OnnxTaps, TheScaleOfTheEmbeddingIsTheFirstPlace) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const char* builder : {"genai", "mobius"}) {
    const auto sides = Open(kOnnx / "gemma2/checkpoint", kOnnx / "gemma2" / builder);
    ASSERT_TRUE(sides);
    const Place place = FirstPlace(*sides);
    EXPECT_EQ(place.tap, "embedding");
    EXPECT_EQ(place.operation.substr(0, 4), "Mul ");
  }
}

struct Fault {
  const char* folder;
  const char* tap;
};

TEST(OnnxTaps, TheFirstPlaceIsWhereTheBuildersFaultIs) {
  if (!HaveRuntime() || kGoldens.empty()) GTEST_SKIP() << "no ONNX Runtime, or no exports";
  for (const Fault& fault : std::initializer_list<Fault>{
           {"genai-0.18/gemma2", "embedding"},
           {"genai-0.18/gemma3-rope-scaled", "embedding"},
           {"genai-0.18/mistral-sliding", "layers.0.attention"},
           {"genai-0.18/nemotron", "layers.0.mixer_norm"},
           {"mobius-0.1/gemma2", "embedding"},
           {"mobius-0.1/llama-bias-headdim", "layers.0.gate"},
           {"mobius-0.1/qwen2-sliding", "layers.2.attention"},
       }) {
    SCOPED_TRACE(fault.folder);
    const auto sides = Open(kGoldens / "models" / fs::path(fault.folder).filename(),
                            kGoldens.parent_path() / "exports" / fault.folder);
    ASSERT_TRUE(sides);
    EXPECT_EQ(FirstPlace(*sides).tap, fault.tap);
  }
}

TEST(OnnxTaps, ADiagnosisTellsThePlaceAndTheOperation) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  ThreadPool pool(1);
  auto reference = ReferenceSubject::Open(kOnnx / "gemma2/checkpoint", pool);
  auto candidate = OnnxSubject::Open(kOnnx / "gemma2/genai", 1);
  ASSERT_TRUE(reference && candidate);
  ExamineOptions options;
  options.diagnose.seconds = 2;  // the place is found before any edit is tried
  const auto examined = Examine(**reference, reference->get(), **candidate, options, pool, kGoOn);
  ASSERT_TRUE(examined) << examined.error().message;
  ASSERT_TRUE(examined->diagnosis && examined->diagnosis->first);
  const FirstDifference& first = *examined->diagnosis->first;
  ASSERT_TRUE(first.tap);
  EXPECT_EQ(TapName(first.tap->tap, first.tap->layer), "embedding");
  EXPECT_EQ(first.operation, "Mul \"/model/embed_tokens/Mul\"");
}

// Layers 0 and 1 keep each other's keys: the prompt is computed right, and no step behind it.
TEST(OnnxTaps, WhatOnlyACacheSpoilsIsFoundInTheCallsOfTheSteps) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  const auto model = OnnxModel::Open(kOnnx / "decoders/llama/genai");
  ASSERT_TRUE(model) << model.error().message;
  OnnxPatch patch;
  for (const OnnxNode& node : model->nodes())
    if (node.op_type == "GroupQueryAttention") {
      const bool first = node.outputs.at(1) == "present.0.key";
      patch.results.push_back({node.index, 1, first ? "present.1.key" : "present.0.key"});
    }
  ASSERT_EQ(patch.results.size(), 2u);
  const TestFolder scratch;
  const Status made = WriteOnnx(*model, patch, scratch / "swapped");
  ASSERT_TRUE(made) << made.error().message;
  ThreadPool pool(1);
  auto reference = ReferenceSubject::Open(kOnnx / "decoders/llama", pool);
  auto candidate = OnnxSubject::Open(scratch / "swapped", 1);
  ASSERT_TRUE(reference && candidate);
  ExamineOptions options;
  options.diagnose.seconds = 2;
  const auto examined = Examine(**reference, reference->get(), **candidate, options, pool, kGoOn);
  ASSERT_TRUE(examined) << examined.error().message;
  EXPECT_EQ(examined->verification.verdict, Verdict::kDiffers);
  ASSERT_TRUE(examined->diagnosis && examined->diagnosis->first);
  const FirstDifference& first = *examined->diagnosis->first;
  EXPECT_GE(first.step, 1);
  ASSERT_TRUE(first.tap);
  EXPECT_TRUE(first.decoding);
  EXPECT_EQ(TapName(first.tap->tap, first.tap->layer), "layers.0.attention");
  EXPECT_EQ(first.operation.substr(0, 20), "GroupQueryAttention ");
}

TEST(OnnxTaps, WithoutTapsARunStaysAsItWas) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  const auto sides = Open(kOnnx / "decoders/llama", kOnnx / "decoders/llama/genai");
  ASSERT_TRUE(sides);
  ThreadPool pool(1);
  OnnxTaps none(*sides->candidate, FoundDecoder{});
  PromptTrace run{.name = "p", .ids = {1, 2, 3}};
  EXPECT_TRUE(none.AddTo(run, sides->reference, pool, kGoOn));
  EXPECT_TRUE(run.taps.empty());
  EXPECT_TRUE(none.notes().empty());
  EXPECT_EQ(none.OperationAt({Tap::kGate, 0}), "");
}

}  // namespace
}  // namespace lockstep

// Exported decoders against what transformers recorded of their checkpoints. Without ONNX Runtime
// the graphs are still read, and what is missing is said.
#include "subjects/onnx_subject.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/testing.h"
#include "formats/onnx_write.h"
#include "subjects/open_subject.h"
#include "trace/trace.h"
#include "verify/verify.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };
const fs::path kDecoders = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/decoders";

bool HaveRuntime() {
  static const bool have = OrtRuntime::Load().has_value();
  return have;
}

std::unique_ptr<OnnxSubject> OpenExport(const fs::path& path) {
  auto subject = OnnxSubject::Open(path, 1);
  if (!subject) {
    ADD_FAILURE() << subject.error().message;
    return nullptr;
  }
  return *std::move(subject);
}

// What is to be expected of an export against the recording of its checkpoint.
struct Case {
  fs::path golden, onnx;
  double least = 0, most = 0;  // max |Δ| over all positions of all prompts
};

std::vector<Case> Cases() {
  std::vector<Case> out;
  for (const char* name : {"llama", "gemma2"})
    out.push_back({kDecoders / name, kDecoders / name / "genai", 0, 5e-5});
  const fs::path goldens = LOCKSTEP_GOLDENS, exports = goldens.parent_path() / "exports";
  std::error_code none;
  if (goldens.empty() || !fs::is_directory(exports, none)) return out;
  const auto add = [&](std::string_view builder, std::string_view name, double least, double most) {
    const std::string checkpoint(name.substr(0, name.find('@')));
    out.push_back({goldens / "models" / checkpoint, exports / builder / name, least, most});
  };
  for (const char* name : {"llama", "qwen2", "qwen3", "granite", "lfm2-moe"})
    add("genai-0.18", name, 0, 5e-5);
  for (const char* name : {"gpt2", "mixtral", "phi3", "smollm3"}) add("mobius-0.1", name, 0, 5e-5);
  // What is wrong with them: the README beside the exports.
  add("genai-0.18", "gemma2", 2e-3, 6e-3);
  add("genai-0.18", "gemma3-rope-scaled", 3, 12);
  add("genai-0.18", "mistral-sliding", 6, 9);
  add("genai-0.18", "nemotron", 0.1, 0.3);
  add("mobius-0.1", "gemma2", 5, 9);
  add("mobius-0.1", "qwen2-sliding", 2, 4);
  add("mobius-0.1", "llama-bias-headdim", 1.5, 4);
  for (const char* name : {"llama@int4", "lfm2-moe@int4", "qwen3@int8"})
    add("genai-0.18", name, 1e-3, 100);
  return out;
}

TEST(OnnxContract, EveryExportSaysHowItWantsToBeFed) {
  for (const Case& c : Cases()) {
    const auto model = OnnxModel::Open(c.onnx);
    ASSERT_TRUE(model) << model.error().message;
    const auto config = ReadGenAiConfig(c.onnx);
    ASSERT_TRUE(config) << config.error().message;
    const auto contract = ReadOnnxContract(*model, *config);
    ASSERT_TRUE(contract) << contract.error().message;
    EXPECT_EQ(contract->fed.size() + contract->caches.size(), model->inputs().size()) << c.onnx;
    EXPECT_EQ(contract->caches.size() + 1, model->outputs().size()) << c.onnx;
    EXPECT_TRUE(contract->vocab_size) << c.onnx;
    // Without genai_config.json the graph alone says as much, but for its windows.
    const auto bare = ReadOnnxContract(*model, std::nullopt);
    ASSERT_TRUE(bare) << bare.error().message;
    for (size_t i = 0; i < bare->caches.size(); ++i) {
      EXPECT_EQ(bare->caches[i].present, contract->caches[i].present);
      EXPECT_EQ(bare->caches[i].shape.back(), contract->caches[i].shape.back()) << c.onnx;
    }
  }
}

TEST(OnnxContract, AWindowedCacheKeepsTheWindowAndTheSlackOfACpu) {
  const auto model = OnnxModel::Open(kDecoders / "gemma2/genai");
  ASSERT_TRUE(model) << model.error().message;
  const auto config = ReadGenAiConfig(kDecoders / "gemma2/genai");
  ASSERT_TRUE(config && *config);
  const auto contract = ReadOnnxContract(*model, *config);
  ASSERT_TRUE(contract) << contract.error().message;
  int windows = 0, buffers = 0;
  for (const OnnxCache& cache : contract->caches) {
    windows += cache.kind == OnnxCache::Kind::kWindow;
    buffers += cache.kind == OnnxCache::Kind::kBuffer;
    if (cache.kind == OnnxCache::Kind::kWindow) {
      EXPECT_EQ(cache.shape[cache.axis], 7 + 16);
    }
  }
  EXPECT_EQ(windows, 2);
  EXPECT_EQ(buffers, 2);
}

TEST(OnnxSubject, WithoutARuntimeItSaysHowToGetOne) {
  const auto missing = OrtRuntime::LoadFrom("/nowhere/libonnxruntime.so");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nowhere/libonnxruntime.so"), std::string::npos);
  if (HaveRuntime()) return;
  const auto subject = OnnxSubject::Open(kDecoders / "llama/genai", 1);
  ASSERT_FALSE(subject);
  EXPECT_NE(subject.error().message.find("pip install onnxruntime"), std::string::npos)
      << subject.error().message;
}

TEST(OnnxSubject, ExportsGiveWhatIsKnownOfThem) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  for (const Case& c : Cases()) {
    const auto golden = ReadTrace(c.golden / "golden.safetensors");
    ASSERT_TRUE(golden) << golden.error().message;
    const auto subject = OpenExport(c.onnx);
    ASSERT_NE(subject, nullptr);
    double worst = 0;
    bool greedy_same = true;
    for (const PromptTrace& prompt : golden->prompts) {
      Probe probe{.name = prompt.name, .ids = prompt.ids, .all_positions = true};
      probe.steps = static_cast<int64_t>(prompt.greedy.size());
      const auto run = subject->Run(probe, kGoOn);
      ASSERT_TRUE(run) << run.error().message;
      ASSERT_TRUE(run->logits);
      EXPECT_EQ(run->logits->num_rows(), static_cast<int64_t>(prompt.ids.size()));
      for (int64_t r = 0; r < run->logits->num_rows(); ++r) {
        const auto ours = run->logits->Row(r), theirs = prompt.logits->Row(r);
        ASSERT_EQ(ours.size(), theirs.size());
        for (size_t i = 0; i < ours.size(); ++i)
          worst = std::max(worst, std::abs(ours[i] - theirs[i]));
      }
      greedy_same = greedy_same && run->greedy == prompt.greedy;
    }
    EXPECT_GE(worst, c.least) << c.onnx;
    EXPECT_LE(worst, c.most) << c.onnx;
    if (c.least == 0) {
      EXPECT_TRUE(greedy_same) << c.onnx;
    }
  }
}

// The healthy and the faulty: whatever a graph computes, its cache must not show.
TEST(OnnxSubject, EveryExportGivesTheSameHoweverItsCacheIsFilled) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  std::set<Passage> seen;
  for (const Case& c : Cases()) {
    const auto golden = ReadTrace(c.golden / "golden.safetensors");
    ASSERT_TRUE(golden) << golden.error().message;
    const auto subject = OpenExport(c.onnx);
    ASSERT_NE(subject, nullptr);
    for (const PromptTrace& prompt : golden->prompts) {
      if (prompt.ids.size() < 5) continue;
      Probe probe{.name = prompt.name, .ids = prompt.ids, .steps = 4, .all_positions = true};
      const auto whole = subject->Run(probe, kGoOn);
      ASSERT_TRUE(whole) << whole.error().message;
      probe.parts = {1, 3, static_cast<int64_t>(prompt.ids.size()) - 4};
      probe.other.assign(prompt.ids.rbegin(), prompt.ids.rend());
      probe.other.insert(probe.other.end(), {3, 1, 2});
      for (const Passage passage : subject->Can().passages) {
        probe.passage = passage;
        const auto run = subject->Run(probe, kGoOn);
        if (!run && passage == Passage::kRewound) {  // past a window
          EXPECT_NE(run.error().message.find("cannot come back"), std::string::npos) << c.onnx;
          continue;
        }
        ASSERT_TRUE(run) << c.onnx << " " << PassageName(passage) << ": " << run.error().message;
        seen.insert(passage);
        EXPECT_EQ(run->greedy, whole->greedy) << c.onnx << " " << PassageName(passage);
        for (int64_t r = 0; r < whole->logits->num_rows(); ++r)
          ASSERT_LT(MaxAbsDifference(run->logits->Row(r), whole->logits->Row(r)), 5e-5)
              << c.onnx << " " << PassageName(passage) << " at position " << r;
        for (const auto& [step, row] : whole->steps)
          EXPECT_LT(MaxAbsDifference(run->StepLogits(step), row.Row(0)), 5e-5)
              << c.onnx << " " << PassageName(passage) << " at step " << step;
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(OnnxSubject, AGraphThatTakesForEverIsStopped) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  const fs::path slow = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/slow/model.onnx";
  const Probe probe{.name = "p", .ids = {1, 2}};
  const auto hasty = OnnxSubject::Open(slow, 1, std::chrono::seconds(1));
  ASSERT_TRUE(hasty) << hasty.error().message;
  const auto late = (*hasty)->Run(probe, kGoOn);
  ASSERT_FALSE(late);
  EXPECT_FALSE(IsInterrupted(late.error()));
  EXPECT_NE(late.error().message.find("--timeout"), std::string::npos) << late.error().message;
  // A person may stop it at any time.
  const auto patient = OnnxSubject::Open(slow, 1);
  ASSERT_TRUE(patient) << patient.error().message;
  int asked = 0;
  const auto stopped =
      (*patient)->Run(probe, [&](std::string_view, int64_t, int64_t) { return ++asked < 3; });
  ASSERT_FALSE(stopped);
  EXPECT_TRUE(IsInterrupted(stopped.error()));
}

TEST(OnnxSubject, OpenSubjectTakesFolderFileAndPrefix) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  ThreadPool pool(1);
  const fs::path folder = kDecoders / "llama/genai";
  for (const std::string& name :
       {folder.string(), (folder / "model.onnx").string(), "onnx:" + folder.string()}) {
    const auto subject = OpenSubject(name, pool);
    ASSERT_TRUE(subject) << subject.error().message;
    EXPECT_NE((*subject)->Name().find("ONNX Runtime"), std::string::npos);
    EXPECT_TRUE((*subject)->Can().tokenizes);
    EXPECT_EQ((*subject)->vocab_size(), 67);
  }
}

TEST(OnnxSubject, ValuesInsideTheGraphCanBeRead) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  const auto subject = OpenExport(kDecoders / "llama/genai");
  ASSERT_NE(subject, nullptr);
  // The first norm and the logits' own MatMul input.
  std::vector<std::string> names;
  for (const OnnxNode& node : subject->model().nodes())
    if (node.op_type.find("LayerNormalization") != std::string::npos)
      names.push_back(node.outputs[0]);
  ASSERT_GE(names.size(), 3u);
  const std::vector<int32_t> ids = {1, 5, 9};
  const auto values = subject->Intermediates(ids, names, kGoOn);
  ASSERT_TRUE(values) << values.error().message;
  for (const std::string& name : names) {
    const TraceTensor& tensor = values->at(name);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{1, 3, 16})) << name;
    double largest = 0;
    for (int64_t r = 0; r < tensor.num_rows(); ++r)
      for (const double x : tensor.Row(r)) largest = std::max(largest, std::abs(x));
    EXPECT_GT(largest, 0) << name;
  }
  const std::vector<std::string> nothing = {"no such value"};
  const auto missing = subject->Intermediates(ids, nothing, kGoOn);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no such value"), std::string::npos);
}

TEST(OnnxSubject, APatchedFolderRunsAndDiffers) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  const auto model = OnnxModel::Open(kDecoders / "llama/genai");
  ASSERT_TRUE(model);
  const OnnxTensor* norm = nullptr;
  for (const OnnxTensor& tensor : model->tensors())
    if (tensor.dims == std::vector<int64_t>{16} && tensor.type == OnnxType::kFloat) norm = &tensor;
  ASSERT_NE(norm, nullptr);
  auto values = *ReadDoubles(*norm);
  const TestFolder scratch;
  const auto logits_with = [&](double value, const std::string& name) {
    for (double& x : values) x = value;
    const OnnxPatch patch{.tensors = {{norm->name, *EncodeNumbers(values, OnnxType::kFloat)}}};
    const auto status = WriteOnnx(*model, patch, scratch.path() / name);
    EXPECT_TRUE(status) << status.error().message;
    const auto subject = OpenExport(scratch.path() / name);
    return subject == nullptr ? Result<PromptTrace>(InputError("not opened"))
                              : subject->Run({.name = "p", .ids = {1, 5, 9}, .steps = 2}, kGoOn);
  };
  const auto one = logits_with(1, "one"), two = logits_with(2, "two");
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_NE(one->StepLogits(0), two->StepLogits(0));
  // Numbers that are none are an error, not a comparison.
  const auto bad = logits_with(std::nan(""), "nan");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("which is no number"), std::string::npos)
      << bad.error().message;
}

TEST(OnnxSubject, ItStopsWhenAsked) {
  if (!HaveRuntime()) GTEST_SKIP() << "no ONNX Runtime";
  const auto subject = OpenExport(kDecoders / "llama/genai");
  ASSERT_NE(subject, nullptr);
  const auto stopped = subject->Run({.name = "p", .ids = {1, 5}},
                                    [](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_TRUE(IsInterrupted(stopped.error())) << stopped.error().message;
}

TEST(OnnxSubject, BrokenFoldersAreSentences) {
  const TestFolder scratch;
  const fs::path folder = kDecoders / "llama/genai";
  for (const auto& entry : fs::directory_iterator(folder))
    fs::copy_file(entry.path(), scratch.path() / entry.path().filename());
  const auto error_of = [&] {
    const auto subject = OnnxSubject::Open(scratch.path(), 1);
    return subject ? "" : subject.error().message;
  };
  fs::remove(scratch.path() / "model.onnx.data");
  EXPECT_NE(error_of().find("model.onnx.data"), std::string::npos) << error_of();
  fs::resize_file(scratch.path() / "model.onnx", 1000);
  EXPECT_NE(error_of().find("model.onnx"), std::string::npos) << error_of();
  fs::remove(scratch.path() / "model.onnx");
  EXPECT_NE(error_of().find("model.onnx"), std::string::npos) << error_of();
}

}  // namespace
}  // namespace lockstep

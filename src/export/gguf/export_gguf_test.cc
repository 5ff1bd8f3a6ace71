#include "export/gguf/export_gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "arch/spec_facts.h"
#include "export/probe_texts.h"
#include "export/safetensors/export_safetensors.h"
#include "formats/test_bytes.h"
#include "model/text_model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kRepository = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden";

std::vector<fs::path> GoldenModels() {
  std::vector<fs::path> roots = {kRepository / "models"};
  if (*LOCKSTEP_GOLDENS != '\0') roots.push_back(fs::path(LOCKSTEP_GOLDENS) / "models");
  std::vector<fs::path> models;
  for (const fs::path& root : roots)
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "config.json")) models.push_back(entry.path());
  return models;
}

std::string Contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Model Loaded(const fs::path& path) {
  auto model = LoadModel(path);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *std::move(model) : Model{};
}

std::vector<float> Values(const WeightView& view) {
  std::vector<float> values(static_cast<size_t>(view.elements()));
  view.ReadRows(0, view.rows, values.data(), view.cols);
  return values;
}

// The largest difference of the two models' weights.
float LargestDifference(const Model& a, const Model& b) {
  float largest = 0;
  EXPECT_EQ(a.weights.all().size(), b.weights.all().size());
  for (const auto& [id, view] : a.weights.all()) {
    const WeightView* other = b.weights.Find(id);
    if (other == nullptr) {
      ADD_FAILURE() << ToString(id);
      continue;
    }
    const std::vector<float> x = Values(view), y = Values(*other);
    for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  return largest;
}

// What some of these goldens have and their GGUF architecture has no words for.
const std::map<std::string, std::string>& Unsayable() {
  static const std::map<std::string, std::string> kUnsayable = {
      // Queries scaled by another number than a head's length.
      {"gemma2", "query_scale"},
      {"gemma3", "query_scale"},
      {"gemma3-old-config", "query_scale"},
      {"gemma3-rope-scaled", "query_scale"},
      {"gpt2-variants", "activation"},
      {"lfm2", "mixer.bias"},  // of the convolutions
      {"llama-rope-dynamic", "dynamic"},
      {"mistral-sliding", "sliding_window"},
      {"qwen2-sliding", "sliding_window"},
      {"qwen3-moe", "layers.1.gate_proj"},  // a layer without experts
      {"smollm3", "mixer.rope"},            // not every fourth layer without rotation
  };
  return kUnsayable;
}

TEST(ExportGguf, EveryModelComesBackThroughAGgufOrIsRefusedByItsFact) {
  size_t exported = 0;
  for (const fs::path& path : GoldenModels()) {
    SCOPED_TRACE(path);
    const TestFolder folder;
    const Model model = Loaded(path);
    const fs::path file = folder.path() / "x.gguf", back = folder.path() / "back";
    const auto report = ExportGguf(model, file, {.precision = "f32"});
    if (!report) {
      const auto fact = Unsayable().find(path.filename().string());
      ASSERT_NE(fact, Unsayable().end()) << report.error().message;
      EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(report.error().message.find(fact->second), std::string::npos)
          << report.error().message;
      EXPECT_FALSE(fs::exists(file));
      continue;
    }
    EXPECT_EQ(report->substitutions, std::vector<std::string>());
    const Model written = Loaded(file);
    EXPECT_EQ(FactsThatDiffer(model.spec, written.spec), std::vector<std::string>());
    // Only 1 + w of a norm is rounded, to a float near 1 or 2.
    const float difference = LargestDifference(model, written);
    if (report->rounded_weights == 0) {
      EXPECT_EQ(difference, 0);
    } else {
      EXPECT_LE(difference, 0x1p-22f);
      EXPECT_EQ(model.spec.final_norm.weight_offset, 1);
    }
    const auto returned = ExportSafetensors(written, back, {.precision = "f32"});
    ASSERT_TRUE(returned) << returned.error().message;
    const Model again = Loaded(back);
    EXPECT_EQ(FactsThatDiffer(model.spec, again.spec), std::vector<std::string>());
    EXPECT_EQ(again.spec.architecture,
              path.filename() == "gemma3" ? again.spec.architecture : model.spec.architecture);
    EXPECT_EQ(LargestDifference(written, again), 0);
    for (const TensorInfo& tensor : model.checkpoint.tensors) {
      const TensorInfo* found = again.checkpoint.Find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    }
    ++exported;
  }
  EXPECT_GE(exported, 25u);
}

TEST(ExportGguf, TheSameModelGivesTheSameBytesWithAnyNumberOfThreads) {
  const TestFolder folder;
  const Model model = Loaded(kRepository / "models/mixtral");
  for (const int threads : {1, 3})
    ASSERT_TRUE(ExportGguf(model, folder.path() / std::to_string(threads),
                           {.precision = "q4_k_m", .threads = threads}));
  EXPECT_EQ(Contents(folder.path() / "1"), Contents(folder.path() / "3"));
}

TEST(ExportGguf, CodesAreKeptWhereTheTypeStays) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(kRepository / "gguf")) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".gguf") || name.starts_with("tiny")) continue;
    const TestFolder folder;
    const Model model = Loaded(entry.path());
    const fs::path out = folder.path() / "x.gguf";
    const auto report = ExportGguf(model, out, {.precision = "keep"});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->rounded_weights, 0) << name;
    const Model written = Loaded(out);
    ASSERT_EQ(written.checkpoint.tensors.size(), model.checkpoint.tensors.size()) << name;
    for (size_t i = 0; i < written.checkpoint.tensors.size(); ++i) {
      const TensorInfo &a = model.checkpoint.tensors[i], &b = written.checkpoint.tensors[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.type, b.type) << a.name;
      EXPECT_TRUE(std::equal(a.data.begin(), a.data.end(), b.data.begin(), b.data.end())) << a.name;
    }
    for (const auto& [key, value] : model.checkpoint.gguf.values())
      EXPECT_NE(written.checkpoint.gguf.Find(key), nullptr) << key;
    ++files;
  }
  EXPECT_GE(files, 4u);
}

TEST(ExportGguf, SubstitutedTypesAreListedAndStrictRefusesThem) {
  const TestFolder folder;
  const Model model = Loaded(kRepository / "models/llama");  // no row has 256 elements
  const auto report = ExportGguf(model, folder.path() / "x.gguf", {.precision = "q4_k"});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_FALSE(report->substitutions.empty());
  EXPECT_NE(report->substitutions.front().find("instead of Q4_K"), std::string::npos)
      << report->substitutions.front();
  const auto strict =
      ExportGguf(model, folder.path() / "y.gguf", {.precision = "q4_k", .strict = true});
  ASSERT_FALSE(strict);
  EXPECT_NE(strict.error().message.find("--strict"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder.path() / "y.gguf"));
}

TEST(ExportGguf, AFileThatIsThereStaysUnlessForced) {
  const TestFolder folder;
  const fs::path out = folder.path() / "x.gguf";
  std::ofstream(out) << "mine";
  const Model model = Loaded(kRepository / "models/llama");
  ASSERT_FALSE(ExportGguf(model, out, {}));
  EXPECT_EQ(Contents(out), "mine");
  ASSERT_FALSE(ExportGguf(model, folder.path(), {}));
  ASSERT_TRUE(ExportGguf(model, out, {.force = true}));
  EXPECT_TRUE(LoadModel(out));
  // Never the model itself.
  const Model written = Loaded(out);
  const std::string before = Contents(out);
  ASSERT_FALSE(ExportGguf(written, out, {.precision = "q8_0", .force = true}));
  EXPECT_EQ(Contents(out), before);
}

TEST(ExportGguf, AnUnknownPrecisionIsToldWithTheNearestOne) {
  const TestFolder folder;
  const Model model = Loaded(kRepository / "models/llama");
  const auto report = ExportGguf(model, folder.path() / "x.gguf", {.precision = "q4_k_n"});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUsage);
  EXPECT_NE(report.error().message.find("did you mean q4_k"), std::string::npos)
      << report.error().message;
}

TEST(ExportGguf, ATokenizerGoesToAFolderAndBack) {
  const TestFolder folder;
  const Model model = Loaded(kRepository / "gguf/llama-Q4_0.gguf");
  ASSERT_TRUE(ExportSafetensors(model, folder.path() / "folder", {}));
  const Model hf = Loaded(folder.path() / "folder");
  ASSERT_TRUE(ExportGguf(hf, folder.path() / "back.gguf", {}));
  const Model back = Loaded(folder.path() / "back.gguf");
  const auto a = LoadTextModel(model.checkpoint), b = LoadTextModel(hf.checkpoint),
             c = LoadTextModel(back.checkpoint);
  ASSERT_TRUE(a && b && c);
  ASSERT_TRUE(a->tokenizer && b->tokenizer && c->tokenizer);
  EXPECT_EQ(*FirstDifferentProbe(*a->tokenizer, *b->tokenizer, {}), "");
  EXPECT_EQ(*FirstDifferentProbe(*a->tokenizer, *c->tokenizer, {}), "");
}

// The same tensors, quantized by llama-quantize (without an importance matrix) and by us.
TEST(ExportGguf, WeightErrorsAreNoLargerThanLlamaQuantizes) {
  const fs::path goldens = fs::path(LOCKSTEP_GOLDENS) / "gguf";
  if (*LOCKSTEP_GOLDENS == '\0' || !fs::exists(goldens / "llama-F32.gguf"))
    GTEST_SKIP() << "needs LOCKSTEP_GOLDENS: the F32 file is too large for the repository";
  const Model source = Loaded(goldens / "llama-F32.gguf");
  size_t compared = 0;
  for (const auto& entry : fs::directory_iterator(goldens)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("llama-") || !name.ends_with(".gguf")) continue;
    const Model theirs = Loaded(entry.path());
    for (const TensorInfo& tensor : theirs.checkpoint.tensors) {
      const TensorType& type = *tensor.type;
      if (type.plain() || type.quantize == nullptr) continue;
      const TensorInfo* wide = source.checkpoint.Find(tensor.name);
      ASSERT_NE(wide, nullptr);
      const int64_t n = tensor.elements();
      std::vector<float> x(static_cast<size_t>(n)), y(x.size()), z(x.size());
      std::memcpy(x.data(), wide->data.data(), x.size() * sizeof(float));
      type.dequantize(tensor.data.data(), n, y.data());
      std::vector<std::byte> codes(tensor.data.size());
      type.quantize(x.data(), n, codes.data());
      type.dequantize(codes.data(), n, z.data());
      double their_error = 0, our_error = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        their_error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
        our_error += (double{x[i]} - z[i]) * (double{x[i]} - z[i]);
      }
      EXPECT_LE(our_error, their_error) << name << " " << tensor.name << " " << type.name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 100u);
}

}  // namespace
}  // namespace lockstep

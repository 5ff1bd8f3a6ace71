#include "cli/onnx_input.h"

#include <gtest/gtest.h>

#include <cstring>

#include "audit/audit.h"
#include "audit/onnx_checkpoint.h"
#include "base/mapped_file.h"
#include "base/readable_json.h"
#include "base/testing.h"
#include "export/data_file.h"
#include "export/export.h"
#include "export/genai/export_genai.h"
#include "export/safetensors/export_safetensors.h"
#include "formats/onnx_write.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const fs::path kOwn = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models";

// The checkpoints at hand: the repository's own are configurations with golden answers, of which
// those with weights count.
std::vector<fs::path> Checkpoints() {
  const fs::path big =
      fs::path(LOCKSTEP_GOLDENS).empty() ? fs::path() : fs::path(LOCKSTEP_GOLDENS) / "models";
  std::vector<fs::path> out = {fs::path(LOCKSTEP_SOURCE_DIR) /
                               "tests/golden/onnx/gemma2/checkpoint"};
  for (const fs::path& root : {kOwn, big}) {
    std::error_code error;
    for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error))
      if (LoadModel(it->path())) out.push_back(it->path());
  }
  return out;
}

class OnnxInputTest : public testing::Test {
 protected:
  // As `lockstep export --to genai` leaves it, without a proof.
  void ExportTo(const fs::path& folder, const Model& model, const std::string& precision) {
    fs::create_directory(folder);
    const ExportOptions options{.precision = precision};
    const auto report = ExportGenAi(model, options, folder, nullptr, pool_,
                                    [](std::string_view, int64_t, int64_t) { return true; });
    ASSERT_TRUE(report) << report.error().message;
    const Json manifest = ExportManifest(model, "genai", options, *report);
    ASSERT_TRUE(WriteSmallFile(folder / kManifestName, ReadableJson(manifest)));
  }
  std::string Refusal(const fs::path& folder, const fs::path& config = {}) {
    const auto input = OpenOnnxInput(folder, config);
    EXPECT_FALSE(input.has_value());
    return input ? "" : input.error().message;
  }

  TestFolder scratch_;
  ThreadPool pool_{2};
};

TEST_F(OnnxInputTest, EveryCheckpointComesBackBitForBit) {
  const std::vector<fs::path> checkpoints = Checkpoints();
  ASSERT_FALSE(checkpoints.empty());
  for (const fs::path& path : checkpoints) {
    SCOPED_TRACE(path.string());
    const Model model = Must(LoadModel(path));
    const fs::path graph = scratch_ / "graph", back = scratch_ / "back";
    ExportTo(graph, model, "fp32");
    const OnnxInput input = Must(OpenOnnxInput(graph, {}));
    EXPECT_EQ(Diff(model.spec, input.model.spec), std::vector<FieldDifference>{});
    const Status same = CheckSameFunction(input.model, *input.onnx);
    EXPECT_TRUE(same) << same.error().message;
    const CheckpointExportReport report =
        Must(ExportSafetensors(input.model, back, {.before = input.before}));
    EXPECT_EQ(report.rounded_weights, 0);
    const Model again = Must(LoadModel(back));
    EXPECT_EQ(Diff(model.spec, again.spec), std::vector<FieldDifference>{});
    EXPECT_EQ(model.checkpoint.config, again.checkpoint.config);
    EXPECT_EQ(model.checkpoint.generation_config, again.checkpoint.generation_config);
    ASSERT_EQ(model.weights.all().size(), again.weights.all().size());
    for (const auto& [id, view] : model.weights.all()) {
      const WeightView& other = again.weights.Get(id.role, id.layer, id.part, id.expert);
      ASSERT_EQ(view.elements(), other.elements()) << ToString(id);
      std::vector<float> a(static_cast<size_t>(view.elements())), b(a.size());
      view.ReadRows(0, view.rows, a.data(), view.cols);
      other.ReadRows(0, other.rows, b.data(), other.cols);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << ToString(id);
    }
    fs::remove_all(graph);
    fs::remove_all(back);
  }
}

TEST_F(OnnxInputTest, CodesComeBackAsTheNumbersThatTheyStandFor) {
  const Model model = Must(LoadModel(Checkpoints().front()));
  ExportTo(scratch_ / "graph", model, "int4");
  const OnnxInput input = Must(OpenOnnxInput(scratch_ / "graph", {}));
  ASSERT_FALSE(input.model.notes.empty());
  EXPECT_NE(input.model.notes[0].find("are codes"), std::string::npos);
  EXPECT_TRUE(CheckSameFunction(input.model, *input.onnx));
  const CheckpointExportReport report =
      Must(ExportSafetensors(input.model, scratch_ / "back", {.before = input.before}));
  EXPECT_EQ(report.rounded_weights, 0);
}

// What the way back needed to find, the audit compares: one number of each is changed.
TEST_F(OnnxInputTest, TheAuditSeesSharedExpertsAndTheTurningPartOfLatentAttention) {
  const Model model = Must(LoadModel(kOwn / "deepseek-v3"));
  ExportTo(scratch_ / "graph", model, "fp32");
  const OnnxModel graph = Must(OnnxModel::Open(scratch_ / "graph"));
  const AuditReport healthy = Must(Audit(model, graph));
  EXPECT_TRUE(healthy.findings.empty());
  EXPECT_EQ(healthy.strangers, 0);
  const auto audited = [&](const std::string& tensor, double factor) {
    const OnnxTensor* stored = graph.Tensor(tensor);
    EXPECT_NE(stored, nullptr) << tensor;
    if (stored == nullptr) return std::string();
    std::vector<double> numbers = Must(ReadDoubles(*stored));
    for (double& x : numbers) x *= factor;
    OnnxPatch patch;
    patch.tensors.push_back({.name = tensor, .bytes = *EncodeNumbers(numbers, stored->type)});
    fs::remove_all(scratch_ / "faulty");
    const Status written = WriteOnnx(graph, patch, scratch_ / "faulty");
    EXPECT_TRUE(written) << written.error().message;
    const AuditReport report = Must(Audit(model, Must(OnnxModel::Open(scratch_ / "faulty"))));
    return report.findings.empty() ? std::string() : report.findings[0].where;
  };
  EXPECT_NE(audited("model.layers.1.moe.shared_expert.up_proj.MatMul.weight", 2).find("shared"),
            std::string::npos);
  std::string cosines;
  for (const OnnxNode& node : graph.nodes())
    if (cosines.empty() && node.op_type == "RotaryEmbedding") cosines = node.inputs[2];
  EXPECT_NE(audited(cosines, 0.5).find("rope"), std::string::npos);
}

TEST_F(OnnxInputTest, AFolderWithoutARecordNeedsAConfiguration) {
  const fs::path checkpoint = Checkpoints().front();
  const Model model = Must(LoadModel(checkpoint));
  ExportTo(scratch_ / "graph", model, "fp32");
  fs::remove(scratch_ / "graph" / kManifestName);
  EXPECT_NE(Refusal(scratch_ / "graph").find("--config"), std::string::npos);
  for (const fs::path& config : {checkpoint, checkpoint / "config.json"})
    EXPECT_EQ(Must(OpenOnnxInput(scratch_ / "graph", config)).model.spec, model.spec);
}

TEST_F(OnnxInputTest, ARecordWithoutConfigurationStatesTheFacts) {
  const Model model = Must(LoadModel(Checkpoints().front()));
  ExportTo(scratch_ / "graph", model, "fp32");
  const fs::path path = scratch_ / "graph" / kManifestName;
  Json manifest = Must(ParseJson(Must(ReadTextFile(path)), "m"));
  manifest["source"].erase("config");
  manifest["source"].erase("generation_config");
  scratch_.Write("graph/" + std::string(kManifestName), manifest.dump());
  const OnnxInput input = Must(OpenOnnxInput(scratch_ / "graph", {}));
  EXPECT_EQ(Diff(model.spec, input.model.spec), std::vector<FieldDifference>{});
}

TEST_F(OnnxInputTest, AnotherModelsConfigurationIsRefused) {
  const fs::path checkpoint = Checkpoints().front();
  const Model model = Must(LoadModel(checkpoint));
  ExportTo(scratch_ / "graph", model, "fp32");
  Json config = model.checkpoint.config;
  config["intermediate_size"] = config["intermediate_size"].get<int64_t>() + 8;
  scratch_.Write("config.json", config.dump());
  EXPECT_NE(Refusal(scratch_ / "graph", scratch_ / "config.json").find("not found in the graph"),
            std::string::npos);
  // The right shapes and another function.
  config = model.checkpoint.config;
  config["rms_norm_eps"] = 0.25;
  scratch_.Write("config.json", config.dump());
  const OnnxInput input = Must(OpenOnnxInput(scratch_ / "graph", scratch_ / "config.json"));
  const Status other = CheckSameFunction(input.model, *input.onnx);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("another function"), std::string::npos);
}

TEST_F(OnnxInputTest, ARecordThatContradictsItselfIsRefused) {
  const Model model = Must(LoadModel(Checkpoints().front()));
  ExportTo(scratch_ / "graph", model, "fp32");
  const fs::path path = scratch_ / "graph" / kManifestName;
  Json manifest = Must(ParseJson(Must(ReadTextFile(path)), "m"));
  manifest["source"]["config"]["rms_norm_eps"] = 0.25;
  scratch_.Write("graph/" + std::string(kManifestName), manifest.dump());
  EXPECT_NE(Refusal(scratch_ / "graph").find("is not what its \"config\" says"), std::string::npos);
}

}  // namespace
}  // namespace lockstep

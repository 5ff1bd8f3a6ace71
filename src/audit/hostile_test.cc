// Attributes that no exporter writes: the audit ends with a report or a sentence, in no time.
#include <gtest/gtest.h>

#include <limits>

#include "audit/audit_testing.h"

namespace lockstep {
namespace {

constexpr int64_t kHostile[] = {std::numeric_limits<int64_t>::min(),
                                -1,
                                0,
                                1,
                                (int64_t{1} << 32) + 4,
                                (int64_t{1} << 40) + 1,
                                std::numeric_limits<int64_t>::max() - 1,
                                std::numeric_limits<int64_t>::max()};

void ExpectAnswer(const Model& reference, const OnnxModel& model, const OnnxPatch& patch) {
  const auto bytes = PatchedOnnx(model, patch);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const TestFolder scratch;
  fs::create_directory(scratch / "faulty");
  ASSERT_TRUE(WriteOnnx(model, patch, scratch / "faulty" / "model"));
  const OnnxModel faulty = Must(OnnxModel::Open(scratch / "faulty" / "model"));
  const auto report = Audit(reference, faulty);
  if (!report) return;
  const RepairPlan plan = Must(PlanRepair(faulty, *report));
  EXPECT_LE(plan.changes.size() + plan.left.size(), report->findings.size());
  // What is mended can be written, read, and audited again.
  const Status written = WriteRepair(faulty, plan, scratch / "mended");
  ASSERT_TRUE(written) << written.error().message;
  const auto again = OnnxModel::Open(scratch / "mended");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(Audit(reference, *again));
}

TEST(Hostile, NumbersInAttributesOfTheGraph) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  for (const char* builder : {"genai", "mobius"}) {
    const OnnxModel model = Must(OnnxModel::Open(kGemma / builder));
    for (const OnnxNode& node : model.nodes())
      for (const OnnxAttribute& attribute : node.attributes) {
        if (!std::holds_alternative<int64_t>(attribute.value) || node.op_type == "Cast") continue;
        SCOPED_TRACE(node.op_type + " " + attribute.name);
        for (const int64_t number : {kHostile[0], kHostile[2], kHostile[7]})
          ExpectAnswer(reference, model, {.attributes = {{node.index, attribute.name, number}}});
      }
  }
}

TEST(Hostile, SizesOfQuantizedMatrices) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  const OnnxModel model = Must(OnnxModel::Open(kGemma / "genai"));
  const size_t at = NodeOf(model, "MatMul", 3);
  const std::string out = model.nodes()[at].outputs[0];
  const auto constant = [&](const char* name, OnnxType type, std::vector<int64_t> dims,
                            size_t bytes) {
    return OnnxPatch::Node{
        .after = at,
        .op_type = "Constant",
        .outputs = {name},
        .value = OnnxPatch::Node::Value{type, std::move(dims), std::vector<std::byte>(bytes)}};
  };
  for (const char* name : {"K", "N", "bits", "block_size", "accuracy_level"})
    for (const int64_t number : kHostile) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(number));
      OnnxPatch patch;
      patch.results.push_back({.node = at, .slot = 0, .value = out + "_plain"});
      patch.nodes.push_back(constant("codes", OnnxType::kUInt8, {4, 2, 8}, 64));
      patch.nodes.push_back(constant("scales", OnnxType::kFloat, {4, 2}, 32));
      OnnxPatch::Node matrix{.after = at,
                             .op_type = "MatMulNBits",
                             .domain = "com.microsoft",
                             .inputs = {model.nodes()[at].inputs[0], "codes", "scales"},
                             .outputs = {out},
                             .attributes = {{"K", 32}, {"N", 4}, {"bits", 4}, {"block_size", 16}}};
      bool set = false;
      for (auto& attribute : matrix.attributes)
        if (attribute.first == name) {
          attribute.second = number;
          set = true;
        }
      if (!set) matrix.attributes.emplace_back(name, number);
      patch.nodes.push_back(std::move(matrix));
      ExpectAnswer(reference, model, patch);
    }
}

}  // namespace
}  // namespace lockstep

#include <gtest/gtest.h>

#include "audit/audit_testing.h"

namespace lockstep {
namespace {

void IsFoundAndMended(const fs::path& healthy, void (*inject)(const OnnxModel&, OnnxPatch&),
                      const std::string& sentence) {
  const TestFolder scratch;
  const Pair original = Look(kGemma / "checkpoint", healthy);
  ASSERT_TRUE(WriteRepair(original.candidate, Must(PlanRepair(original.candidate, original.report)),
                          scratch / "healthy"));
  const OnnxModel model = Must(OnnxModel::Open(scratch / "healthy"));
  OnnxPatch patch;
  inject(model, patch);
  ASSERT_TRUE(WriteOnnx(model, patch, scratch / "faulty"));
  const Pair pair = Look(kGemma / "checkpoint", scratch / "faulty");
  EXPECT_NE(All(pair.report).find(sentence), std::string::npos) << All(pair.report);
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  for (const std::string& left : plan.left)
    EXPECT_NE(left.find("export again"), std::string::npos) << left;
  if (!plan.left.empty()) return;
  ASSERT_TRUE(WriteRepair(pair.candidate, plan, scratch / "mended"));
  const AuditReport mended = Look(kGemma / "checkpoint", scratch / "mended").report;
  EXPECT_TRUE(mended.findings.empty()) << All(mended);
}

TEST(CompareWiring, CachesOfOtherLayersAreFoundAndMended) {
  IsFoundAndMended(
      kGemma / "genai",
      [](const OnnxModel& m, OnnxPatch& p) {
        const size_t one = NodeOf(m, "GroupQueryAttention"),
                     two = NodeOf(m, "GroupQueryAttention", 1);
        p.inputs.push_back({one, 3, std::string(m.nodes()[two].Input(3))});
        p.inputs.push_back({two, 3, std::string(m.nodes()[one].Input(3))});
      },
      "layers[0].mixer.cache: what present.0.key keeps is read back from elsewhere; expected "
      "past_key_values.0.key, found past_key_values.1.key");
}

TEST(CompareWiring, KeysReadAsValuesAreFoundAndMended) {
  IsFoundAndMended(
      kGemma / "genai",
      [](const OnnxModel& m, OnnxPatch& p) {
        const size_t one = NodeOf(m, "GroupQueryAttention");
        p.inputs.push_back({one, 3, "past_key_values.0.value"});
        p.inputs.push_back({one, 4, "past_key_values.0.key"});
      },
      "what present.0.key keeps is read back from elsewhere");
}

// One more on one layer's positions: the rotation of its queries and keys alone.
TEST(CompareWiring, OtherPositionsOfOneRotationAreFound) {
  IsFoundAndMended(
      kGemma / "mobius",
      [](const OnnxModel& m, OnnxPatch& p) {
        const double one = 1;
        p.nodes.push_back(
            {.after = 3,
             .op_type = "Constant",
             .outputs = {"one"},
             .value = OnnxPatch::Node::Value{
                 OnnxType::kInt64, {}, *EncodeNumbers(std::span(&one, 1), OnnxType::kInt64)}});
        p.nodes.push_back(
            {.after = 3, .op_type = "Add", .inputs = {"position_ids", "one"}, .outputs = {"next"}});
        const size_t rotates = NodeOf(m, "RotaryEmbedding", 1);
        for (const size_t slot : {size_t{1}, size_t{2}}) {
          const std::string table = m.Producer(m.nodes()[rotates].Input(slot))->inputs[0];
          const std::string rows = "rows" + std::to_string(slot);
          p.nodes.push_back(
              {.after = 3, .op_type = "Gather", .inputs = {table, "next"}, .outputs = {rows}});
          p.inputs.push_back({rotates, slot, rows});
        }
      },
      "layers[0].mixer.positions: other position ids turn these heads than those of other layers");
}

TEST(CompareWiring, ACountOfOneLayersOwnIsFound) {
  IsFoundAndMended(
      kGemma / "genai",
      [](const OnnxModel& m, OnnxPatch& p) {
        const size_t two = NodeOf(m, "GroupQueryAttention", 1);
        p.nodes.push_back(
            {.after = two - 1,
             .op_type = "Add",
             .inputs = {std::string(m.nodes()[two].Input(5)), std::string(m.nodes()[two].Input(5))},
             .outputs = {"twice"}});
        p.inputs.push_back({two, 5, "twice"});
      },
      "another count of what may be seen than that of other layers");
}

TEST(CompareWiring, WhatNoAuditComparesIsSaid) {
  for (const char* builder : {"genai", "mobius"}) {
    const AuditReport report = Look(kGemma / "checkpoint", kGemma / builder).report;
    const auto& all = report.not_compared;
    EXPECT_TRUE(std::count(all.begin(), all.end(), "how position ids are counted"));
    EXPECT_TRUE(std::count(all.begin(), all.end(), "what the attention masks say besides windows"));
  }
}

// Of every layer, its count of what may be seen plus what is left of a constant of its own.
AuditReport WithOwnConstants(const std::vector<double>& last, const std::vector<int64_t>& upper) {
  const TestFolder scratch;
  const Pair original = Look(kGemma / "checkpoint", kGemma / "genai");
  EXPECT_TRUE(WriteRepair(original.candidate, Must(PlanRepair(original.candidate, original.report)),
                          scratch / "healthy"));
  const OnnxModel model = Must(OnnxModel::Open(scratch / "healthy"));
  OnnxPatch patch;
  for (size_t layer = 0; layer < 2; ++layer) {
    const size_t node = NodeOf(model, "GroupQueryAttention", layer);
    const auto name = [&](const char* what) { return what + std::to_string(layer); };
    std::vector<double> numbers(144);
    numbers.back() = last[layer];
    patch.nodes.push_back(
        {.after = node - 1,
         .op_type = "Constant",
         .outputs = {name("mask")},
         .value = OnnxPatch::Node::Value{
             OnnxType::kInt32, {12, 12}, *EncodeNumbers(numbers, OnnxType::kInt32)}});
    patch.nodes.push_back({.after = node - 1,
                           .op_type = "Trilu",
                           .inputs = {name("mask")},
                           .outputs = {name("half")},
                           .attributes = {{"upper", upper[layer]}}});
    patch.nodes.push_back({.after = node - 1,
                           .op_type = "ReduceSum",
                           .inputs = {name("half")},
                           .outputs = {name("sum")},
                           .attributes = {{"keepdims", 0}}});
    patch.nodes.push_back({.after = node - 1,
                           .op_type = "Add",
                           .inputs = {std::string(model.nodes()[node].Input(5)), name("sum")},
                           .outputs = {name("count")}});
    patch.inputs.push_back({node, 5, name("count")});
  }
  EXPECT_TRUE(WriteOnnx(model, patch, scratch / "own"));
  return Look(kGemma / "checkpoint", scratch / "own").report;
}

TEST(CompareWiring, ConstantsAndOperatorsAreAlikeByWhatTheyHold) {
  const std::string other = "another count of what may be seen than that of other layers";
  const std::string copies = All(WithOwnConstants({0, 0}, {0, 0}));
  EXPECT_EQ(copies.find(other), std::string::npos) << copies;
  const std::string numbers = All(WithOwnConstants({0, 1}, {0, 0}));
  EXPECT_NE(numbers.find(other), std::string::npos) << numbers;
  const std::string halves = All(WithOwnConstants({0, 0}, {0, 1}));
  EXPECT_NE(halves.find(other), std::string::npos) << halves;
}

}  // namespace
}  // namespace lockstep

// What is done to token ids and positions before they choose rows of tables.
#include <gtest/gtest.h>

#include "audit/audit_testing.h"
#include "audit/index_path.h"

namespace lockstep {
namespace {

OnnxPatch::Node Number(size_t after, const std::string& name, double number) {
  return {.after = after,
          .op_type = "Constant",
          .outputs = {name},
          .value = OnnxPatch::Node::Value{
              OnnxType::kInt64, {}, *EncodeNumbers(std::span(&number, 1), OnnxType::kInt64)}};
}

// The lookup of embeddings, by the ids as they are given.
size_t Lookup(const OnnxModel& model) {
  for (const OnnxNode& node : model.nodes())
    if (node.op_type == "Gather" && node.Input(1) == "input_ids") return node.index;
  ADD_FAILURE();
  return 0;
}

// `op` on the ids and a number in front of it.
OnnxPatch OnIds(const OnnxModel& model, const std::string& op, double number) {
  const size_t lookup = Lookup(model);
  OnnxPatch patch;
  // What stands behind a node stands in front of the next.
  const size_t before = lookup == 0 ? 0 : lookup - 1;
  patch.nodes.push_back(Number(before, "the number", number));
  patch.nodes.push_back({.after = before,
                         .op_type = op,
                         .inputs = {"input_ids", "the number"},
                         .outputs = {"other ids"}});
  patch.inputs.push_back({.node = lookup, .slot = 1, .value = "other ids"});
  return patch;
}

class Ids : public testing::TestWithParam<const char*> {
 protected:
  Ids() : original_(Look(kGemma / "checkpoint", kGemma / GetParam())) {
    const RepairPlan plan = Must(PlanRepair(original_.candidate, original_.report));
    EXPECT_TRUE(WriteRepair(original_.candidate, plan, scratch_ / "healthy"));
  }
  Pair With(const OnnxPatch& patch) {
    fs::remove_all(scratch_ / "faulty");
    EXPECT_TRUE(WriteOnnx(Healthy(), patch, scratch_ / "faulty"));
    return Look(kGemma / "checkpoint", scratch_ / "faulty");
  }
  OnnxModel Healthy() const { return Must(OnnxModel::Open(scratch_ / "healthy")); }

  TestFolder scratch_;
  Pair original_;
};
INSTANTIATE_TEST_SUITE_P(Gemma2, Ids, testing::Values("genai", "mobius"));

TEST_P(Ids, AnOperatorOnThemIsToldWithItsNumberAndNothingElse) {
  const struct {
    const char* op;
    double number;
    const char *what, *found;
  } cases[] = {{"Add", 1, "Add by 1", "that of id + 1"},
               {"Sub", 2, "Sub by 2", "that of id - 2"},
               {"Mod", 5, "Mod by 5", "that of 0 for id 5"},
               {"Min", 7, "Min by 7", "that of 7 for id 8"}};
  for (const auto& one : cases) {
    const Pair pair = With(OnIds(Healthy(), one.op, one.number));
    ASSERT_EQ(pair.report.findings.size(), 1U) << one.op << "\n" << All(pair.report);
    const Finding& finding = pair.report.findings[0];
    EXPECT_EQ(finding.kind, FindingKind::kStructure);
    EXPECT_EQ(finding.where, "token ids");
    EXPECT_NE(finding.sentence.find(one.what), std::string::npos) << finding.sentence;
    EXPECT_NE(finding.found.find(one.found), std::string::npos) << finding.found;
    EXPECT_EQ(CountOf(pair.report, WeightState::kDiffers), 0);
    EXPECT_TRUE(finding.repairable());
    fs::remove_all(scratch_ / "mended");
    ASSERT_TRUE(WriteRepair(pair.candidate, Must(PlanRepair(pair.candidate, pair.report)),
                            scratch_ / "mended"));
    const AuditReport after = Look(kGemma / "checkpoint", scratch_ / "mended").report;
    EXPECT_TRUE(after.findings.empty()) << All(after);
  }
}

TEST_P(Ids, WhatChangesNoIdOfTheVocabularyIsNoFinding) {
  const auto vocabulary = static_cast<double>(original_.reference.spec.embedding.vocab_size);
  const struct {
    const char* op;
    double number;
  } cases[] = {{"Min", vocabulary - 1}, {"Max", 0}, {"Mod", vocabulary}};
  for (const auto& one : cases) {
    const Pair pair = With(OnIds(Healthy(), one.op, one.number));
    EXPECT_TRUE(pair.report.findings.empty()) << one.op << "\n" << All(pair.report);
  }
}

// Rotations do not see a shift of all positions, and the graph is another one all the same.
TEST(Positions, AShiftOfThemIsTold) {
  const TestFolder scratch;
  const OnnxModel mobius = Must(OnnxModel::Open(kGemma / "mobius"));
  OnnxPatch patch;
  size_t readers = 0;
  for (const OnnxNode& node : mobius.nodes())
    for (size_t slot = 0; slot < node.inputs.size(); ++slot)
      if (node.inputs[slot] == "position_ids") {
        patch.inputs.push_back({.node = node.index, .slot = slot, .value = "later"});
        if (readers++ > 0) continue;
        const size_t before = std::max<size_t>(node.index, 1) - 1;
        patch.nodes.push_back(Number(before, "three", 3));
        patch.nodes.push_back({.after = before,
                               .op_type = "Add",
                               .inputs = {"position_ids", "three"},
                               .outputs = {"later"}});
      }
  ASSERT_GT(readers, 0U);
  ASSERT_TRUE(WriteOnnx(mobius, patch, scratch / "faulty"));
  const Pair pair = Look(kGemma / "checkpoint", scratch / "faulty");
  const std::string all = All(pair.report);
  EXPECT_NE(all.find("positions are shifted by 3 before they choose rows of cosines and sines (Add "
                     "by 3); expected row p for position p, found row p + 3 for position p"),
            std::string::npos)
      << all;
  ASSERT_TRUE(WriteRepair(pair.candidate, Must(PlanRepair(pair.candidate, pair.report)),
                          scratch / "mended"));
  EXPECT_EQ(All(Look(kGemma / "checkpoint", scratch / "mended").report).find("positions are"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep

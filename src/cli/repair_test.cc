// lockstep repair from end to end, where what is wrong is nothing that an audit compares.
#include <gtest/gtest.h>

#include "audit/audit_testing.h"
#include "base/json.h"
#include "cli/exit_code.h"
#include "cli/verb.h"
#include "ort/ort_runtime.h"

namespace lockstep {
namespace {

// One position for two tokens, in every layer alike: all tables, masks and caches are right.
void HalvePositions(const OnnxModel& m, OnnxPatch& p) {
  const double two = 2;
  p.nodes.push_back(
      {.after = 0,
       .op_type = "Constant",
       .outputs = {"two"},
       .value = OnnxPatch::Node::Value{
           OnnxType::kInt64, {}, *EncodeNumbers(std::span(&two, 1), OnnxType::kInt64)}});
  p.nodes.push_back(
      {.after = 0, .op_type = "Div", .inputs = {"position_ids", "two"}, .outputs = {"halved"}});
  for (const OnnxNode& node : m.nodes())
    for (size_t slot = 0; slot < node.inputs.size(); ++slot)
      if (node.inputs[slot] == "position_ids") p.inputs.push_back({node.index, slot, "halved"});
}

TEST(RepairVerb, WhatOnlyADiagnosisFindsIsToBeExportedAgain) {
  if (!OrtRuntime::Load()) GTEST_SKIP() << "no ONNX Runtime";
  const TestFolder scratch;
  const Pair original = Look(kGemma / "checkpoint", kGemma / "mobius");
  ASSERT_TRUE(WriteRepair(original.candidate, Must(PlanRepair(original.candidate, original.report)),
                          scratch / "healthy"));
  const OnnxModel healthy = Must(OnnxModel::Open(scratch / "healthy"));
  OnnxPatch patch;
  HalvePositions(healthy, patch);
  ASSERT_TRUE(WriteOnnx(healthy, patch, scratch / "faulty"));
  CLI::App app;
  Action action;
  AddRepairVerb(app, action);
  app.parse(fmt::format("repair {} --reference {} --out {} --json", (scratch / "faulty").string(),
                        (kGemma / "checkpoint").string(), (scratch / "mended").string()));
  testing::internal::CaptureStdout();
  EXPECT_EQ(action(), kExitNo);
  const Json said = Json::parse(testing::internal::GetCapturedStdout());
  EXPECT_TRUE(said["written"].is_null());
  ASSERT_GE(said["left"].size(), 1u) << said["left"].dump();
  const auto left = said["left"][0].get<std::string>();
  EXPECT_TRUE(left.starts_with("export again: ")) << left;
}

}  // namespace
}  // namespace lockstep

#include <gtest/gtest.h>

#include "audit/audit_testing.h"

namespace lockstep {
namespace {

// The export of the builder that computes rotations by operators of their own, from position ids.
struct Positions {
  explicit Positions(void (*inject)(const OnnxModel& model, OnnxPatch& patch)) {
    const Pair original = Look(kGemma / "checkpoint", kGemma / "mobius");
    EXPECT_TRUE(WriteRepair(original.candidate,
                            Must(PlanRepair(original.candidate, original.report)),
                            scratch / "healthy"));
    const OnnxModel healthy = Must(OnnxModel::Open(scratch / "healthy"));
    OnnxPatch patch;
    inject(healthy, patch);
    const Status made = WriteOnnx(healthy, patch, scratch / "faulty");
    EXPECT_TRUE(made) << made.error().message;
  }
  TestFolder scratch;
};

// An input's ids go through one operator, with 0 and `bound`, before they choose rows.
void Through(const OnnxModel& m, OnnxPatch& p, const char* op, std::vector<std::string> behind,
             const char* input = "position_ids", double bound = 15) {
  std::vector<std::string> inputs = {input};
  inputs.insert(inputs.end(), behind.begin(), behind.end());
  for (const double number : {0.0, bound})
    p.nodes.push_back(
        {.after = 0,
         .op_type = "Constant",
         .outputs = {number == 0 ? "least" : "most"},
         .value = OnnxPatch::Node::Value{
             OnnxType::kInt64, {}, *EncodeNumbers(std::span(&number, 1), OnnxType::kInt64)}});
  p.nodes.push_back(
      {.after = 0, .op_type = op, .inputs = std::move(inputs), .outputs = {"bounded"}});
  for (const OnnxNode& node : m.nodes())
    for (size_t slot = 0; slot < node.inputs.size(); ++slot)
      if (node.inputs[slot] == input) p.inputs.push_back({node.index, slot, "bounded"});
}

TEST(CompareReach, AShortTableIsFoundAndLengthened) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    for (const size_t slot : {size_t{7}, size_t{8}}) {
      const OnnxTensor& t = *m.Tensor(m.nodes()[NodeOf(m, "GroupQueryAttention")].Input(slot));
      std::vector<std::byte> rows(t.bytes.begin(),
                                  t.bytes.begin() + static_cast<long>(t.bytes.size() / 2));
      p.tensors.push_back(
          {.name = t.name, .bytes = rows, .dims = std::vector{int64_t{16}, t.dims[1]}});
    }
  });
  const Pair pair = faulty.LookAt();
  EXPECT_NE(
      All(pair.report)
          .find("layers[0,1].mixer.rope: the table ends behind row 15: prompts longer than 16 are "
                "wrong or fail; expected 32 rows, found 16 rows"),
      std::string::npos)
      << All(pair.report);
  const AuditReport mended = faulty.Mended(pair);
  EXPECT_TRUE(mended.findings.empty()) << All(mended);
}

TEST(CompareReach, BoundsOnPositionIdsAreFoundAndRaised) {
  static void (*const injections[])(const OnnxModel&, OnnxPatch&) = {
      [](const OnnxModel& m, OnnxPatch& p) {
        Through(m, p, "Clip", {"least", "most"});
      },
      [](const OnnxModel& m, OnnxPatch& p) { Through(m, p, "Min", {"most"}); },
      [](const OnnxModel& m, OnnxPatch& p) { Through(m, p, "Mod", {"most"}); }};
  for (const auto& inject : injections) {
    const Positions faulty(inject);
    const Pair pair = Look(kGemma / "checkpoint", faulty.scratch / "faulty");
    EXPECT_NE(All(pair.report).find("positions: position ids "), std::string::npos)
        << All(pair.report);
    EXPECT_NE(All(pair.report).find("prompts longer than 1"), std::string::npos);
    const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
    EXPECT_TRUE(plan.left.empty()) << plan.left[0];
    ASSERT_TRUE(WriteRepair(pair.candidate, plan, faulty.scratch / "mended"));
    const AuditReport mended = Look(kGemma / "checkpoint", faulty.scratch / "mended").report;
    EXPECT_TRUE(mended.findings.empty()) << All(mended);
  }
}

// Padding has position 0 at least; a bound behind the context bounds nothing.
TEST(CompareReach, ABoundThatNoPromptReachesIsNoFinding) {
  const Positions faulty([](const OnnxModel& m, OnnxPatch& p) {
    Through(m, p, "Clip", {"least", ""});
  });
  const AuditReport report = Look(kGemma / "checkpoint", faulty.scratch / "faulty").report;
  EXPECT_TRUE(report.findings.empty()) << All(report);
}

TEST(CompareReach, ABoundOnTokenIdsIsNoneOnPositions) {
  for (const char* folder : {"genai", "mobius"}) {
    const Pair pair = Look(kGemma / "checkpoint", kGemma / folder);
    const TestFolder scratch;
    ASSERT_TRUE(WriteRepair(pair.candidate, Must(PlanRepair(pair.candidate, pair.report)),
                            scratch / "healthy"));
    const OnnxModel healthy = Must(OnnxModel::Open(scratch / "healthy"));
    OnnxPatch patch;
    // Of 40 tokens, below the context of 32.
    Through(healthy, patch, "Clip", {"least", "most"}, "input_ids", 20);
    ASSERT_FALSE(patch.inputs.empty());
    ASSERT_TRUE(WriteOnnx(healthy, patch, scratch / "bounded"));
    const AuditReport report = Look(kGemma / "checkpoint", scratch / "bounded").report;
    EXPECT_EQ(All(report).find("position"), std::string::npos) << All(report);
  }
}

TEST(CompareReach, ADynamicRopeInATableIsToBeExportedAgain) {
  const Positions healthy([](const OnnxModel&, OnnxPatch&) {});
  Pair pair = Look(kGemma / "checkpoint", healthy.scratch / "healthy");
  ASSERT_TRUE(pair.report.healthy()) << All(pair.report);
  for (LayerSpec& layer : pair.reference.spec.layers)
    std::get<AttentionSpec>(layer.mixer).rope->scaling =
        DynamicScaling{.factor = 4, .original_max_position_embeddings = 32};
  pair.report = Must(Audit(pair.reference, pair.candidate));
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  ASSERT_EQ(plan.left.size(), 1u) << All(pair.report);
  EXPECT_NE(plan.left[0].find("prompts longer than 32 are wrong or fail"), std::string::npos);
  EXPECT_NE(plan.left[0].find("export again with the frequencies computed in the graph"),
            std::string::npos)
      << plan.left[0];
}

}  // namespace
}  // namespace lockstep

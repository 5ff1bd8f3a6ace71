// Exports in fp16 by two builders: what is only kept in 16 bits is no fault, and their faults are
// found under it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "audit/audit_testing.h"
#include "audit/rope_tables.h"
#include "audit/storage.h"
#include "model/apply_edit.h"
#include "reference/ops.h"
#include "reference/rope.h"

namespace lockstep {
namespace {

StoredRopeTable TableOf(const RopeSpec& rope, Rounding storage, Rounding angles,
                        int64_t rows = 512) {
  StoredRopeTable table{.rows = rows, .half = rope.rotary_dim / 2, .cos = {}, .sin = {}};
  table.storage = storage;
  table.amplitude = Rounded(RopeAttentionFactor(rope), storage);
  const std::vector<float> inverse = InverseFrequencies(rope, 1);
  for (int64_t r = 0; r < rows; ++r)
    for (const float f : inverse) {
      const double angle = Rounded(static_cast<double>(r) * double{f}, angles);
      table.cos.push_back(static_cast<float>(Rounded(std::cos(angle), storage)));
      table.sin.push_back(static_cast<float>(Rounded(std::sin(angle), storage)));
    }
  for (const float f : inverse) table.inverse.push_back(double{f});
  return table;
}

TEST(RopeTables, ThatAreKeptInSixteenBitsAreTheSpecsOwn) {
  const RopeSpec rope{.theta = 10000, .rotary_dim = 64, .scaling = {}};
  for (const Rounding storage : {Rounding::kFP16, Rounding::kBF16}) {
    const StoredRopeTable table = TableOf(rope, storage, Rounding::kNone);
    EXPECT_LT(EarlyError(table, rope, 1), kSameEntry);
    EXPECT_FALSE(EarlyError(TableOf(rope, storage, storage), rope, 1) < kSameEntry);
    RopeSpec other = rope;
    other.theta = 10100;
    EXPECT_FALSE(EarlyError(table, other, 1) < kSameEntry);
  }
}

TEST(RopeTables, WhoseAnglesWereRoundedAreToldApart) {
  const RopeSpec rope{.theta = 10000, .rotary_dim = 64, .scaling = {}};
  for (const Rounding type : {Rounding::kFP16, Rounding::kBF16})
    for (const Rounding storage : {Rounding::kNone, type}) {
      const auto told = RoundedAngles(TableOf(rope, storage, type), rope, 1);
      ASSERT_TRUE(told);
      EXPECT_NE(told->find(StorageName(type)), std::string::npos) << *told;
    }
  EXPECT_FALSE(RoundedAngles(TableOf(rope, Rounding::kFP16, Rounding::kNone), rope, 1));
  RopeSpec other = rope;
  other.theta = 10100;
  EXPECT_FALSE(RoundedAngles(TableOf(other, Rounding::kFP16, Rounding::kNone), rope, 1));
}

TEST(Storage, IsTheNumberAsTheTypeKeepsIt) {
  EXPECT_TRUE(SameAsStored(0.22, 0.219970703125, Rounding::kFP16));
  EXPECT_FALSE(SameAsStored(0.22, 0.219970703125, Rounding::kNone));
  EXPECT_FALSE(SameAsStored(0.22, 0.2198486328125, Rounding::kFP16));  // one step beside it
  EXPECT_EQ(StepOf(1.0, Rounding::kFP16), 0x1p-10);
  EXPECT_EQ(StepOf(1e-7, Rounding::kFP16), 0x1p-24);
  EXPECT_EQ(StepOf(1.0, Rounding::kBF16), 0x1p-7);
}

class HalfBuilders : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gemma2, HalfBuilders, testing::Values("genai-fp16", "mobius-fp16"));

TEST_P(HalfBuilders, TheirTablesAndConstantsAreTheCheckpoints) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / GetParam());
  EXPECT_EQ(CountOf(pair.report, WeightState::kDiffers), 0);
  EXPECT_EQ(CountOf(pair.report, WeightState::kNotFound), 0);
  for (const Finding& finding : pair.report.findings)
    EXPECT_NE(finding.kind, FindingKind::kRope) << finding.sentence;
  const auto scale = std::find_if(pair.report.findings.begin(), pair.report.findings.end(),
                                  [](const Finding& f) { return f.where == "embedding.scale"; });
  ASSERT_NE(scale, pair.report.findings.end()) << All(pair.report);
  EXPECT_EQ(scale->kind, FindingKind::kQuantized) << scale->sentence;
}

TEST(HalfExports, TheirFaultsAreFoundUnderIt) {
  const std::string genai = All(Look(kGemma / "checkpoint", kGemma / "genai-fp16").report);
  EXPECT_NE(genai.find("1 + weight of the norm was computed in bf16"), std::string::npos) << genai;
  const std::string mobius = All(Look(kGemma / "checkpoint", kGemma / "mobius-fp16").report);
  EXPECT_NE(mobius.find("the windows are on the wrong layers"), std::string::npos) << mobius;
}

// The reference's own edit stands for a fault of the tables.
TEST_P(HalfBuilders, AnotherRopeIsNamedFromTheirTables) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  const OnnxModel candidate = Must(OnnxModel::Open(kGemma / GetParam()));
  // 32 rows in fp16 do not say theta to its last digit; that it is another they do.
  for (const auto& [edit, found] :
       {std::pair{"layers[*].mixer.rope.theta=10500", "found theta"},
        {"layers[*].mixer.rope.scaling={\"kind\":\"linear\",\"factor\":8}",
         "found theta 10000, no scaling"}}) {
    const Model edited = Must(Edited(reference, Must(ParseEdit(edit))));
    const AuditReport report = Must(Audit(edited, candidate));
    const auto rope = std::find_if(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return f.kind == FindingKind::kRope; });
    ASSERT_NE(rope, report.findings.end()) << edit;
    EXPECT_NE(rope->sentence.find(found), std::string::npos) << rope->sentence;
  }
}

TEST_P(HalfBuilders, AScaleThatSixteenBitsWouldHoldBetterIsAFault) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  const OnnxModel candidate = Must(OnnxModel::Open(kGemma / GetParam()));
  const Model edited = Must(Edited(reference, Must(ParseEdit("embedding.scale.value=4.9072"))));
  const AuditReport report = Must(Audit(edited, candidate));
  EXPECT_TRUE(std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& f) {
    return f.where == "embedding.scale" && f.kind == FindingKind::kScale;
  })) << All(report);
}

}  // namespace
}  // namespace lockstep

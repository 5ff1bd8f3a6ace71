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

TEST(RopeTables, WhoseEntriesWereRoundedAreToldAsThat) {
  const RopeSpec rope{.theta = 10000, .rotary_dim = 64, .scaling = {}};
  for (const Rounding type : {Rounding::kFP16, Rounding::kBF16}) {
    StoredRopeTable table = TableOf(rope, type, Rounding::kNone);
    EXPECT_FALSE(RoundedEntries(table, rope, 1)) << "they are kept so";
    table.storage = Rounding::kNone;
    const auto told = RoundedEntries(table, rope, 1);
    ASSERT_TRUE(told);
    EXPECT_NE(told->find(StorageName(type)), std::string::npos) << *told;
    RopeSpec other = rope;
    other.theta = 10100;
    EXPECT_FALSE(RoundedEntries(table, other, 1));
    EXPECT_FALSE(RoundedEntries(TableOf(rope, Rounding::kNone, type), rope, 1));
  }
  EXPECT_FALSE(RoundedEntries(TableOf(rope, Rounding::kNone, Rounding::kNone), rope, 1));
}

TEST(RopeTables, OfAGraphWhoseEntriesWereRoundedAreNoOtherFrequencies) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) {
    const OnnxNode& attention = m.nodes()[NodeOf(m, "GroupQueryAttention")];
    for (const size_t slot : {size_t{7}, size_t{8}}) {
      const OnnxTensor& table = *m.Tensor(attention.Input(slot));
      std::vector<double> numbers = Must(ReadDoubles(table));
      for (double& x : numbers) x = Rounded(x, Rounding::kBF16);
      p.tensors.push_back({.name = table.name, .bytes = *EncodeNumbers(numbers, table.type)});
    }
  });
  const Pair pair = faulty.LookAt();
  EXPECT_NE(All(pair.report).find("the entries of cosines and sines were rounded to bf16"),
            std::string::npos)
      << All(pair.report);
  EXPECT_EQ(All(pair.report).find("factors of its own"), std::string::npos) << All(pair.report);
  const AuditReport mended = faulty.Mended(pair);
  EXPECT_TRUE(mended.findings.empty()) << All(mended);
}

// A matrix of a graph in fp16 that was rounded to bf16 before: fp16 did not ask for that.
TEST(HalfExports, AnotherRoundingThanTheirStorageIsAFault) {
  const WeightId id{Role::kUpProj, Part::kWeight, 0, -1};
  const Pair pair = Look(kGemma / "checkpoint", kGemma / "mobius-fp16");
  // The checkpoint is in bf16: as numbers that bf16 does not hold.
  const Model reference = Must(
      Edited(pair.reference, Must(ParseEdit("weights: scale layers[0].up_proj.weight by 1.01"))));
  const WeightView& view = *reference.weights.Find(id);
  std::vector<float> numbers(static_cast<size_t>(view.rows * view.cols));
  view.ReadRows(0, view.rows, numbers.data(), view.cols);
  const auto node = static_cast<size_t>(
      pair.candidate.nodes()[static_cast<size_t>(pair.report.decoder.matrices.at(id).node)].index);
  const OnnxTensor& matrix = MatrixAt(pair.candidate, node);
  for (const Rounding rounding : {Rounding::kFP16, Rounding::kBF16}) {
    std::vector<double> stored(numbers.size());
    for (int64_t r = 0; r < view.rows; ++r)
      for (int64_t c = 0; c < view.cols; ++c)
        stored[static_cast<size_t>(c * view.rows + r)] =
            Rounded(numbers[static_cast<size_t>(r * view.cols + c)], rounding);
    OnnxPatch patch;
    patch.tensors.push_back(
        {.name = matrix.name, .bytes = Must(EncodeNumbers(stored, matrix.type))});
    const TestFolder scratch;
    ASSERT_TRUE(WriteOnnx(pair.candidate, patch, scratch / "rounded"));
    const OnnxModel candidate = Must(OnnxModel::Open(scratch / "rounded"));
    const AuditReport report = Must(Audit(reference, candidate));
    const std::string sentence =
        fmt::format("layers[0].up_proj.weight: rounded to {}", StorageName(rounding));
    const auto told = std::ranges::find_if(
        report.findings, [&](const Finding& f) { return f.sentence.starts_with(sentence); });
    ASSERT_NE(told, report.findings.end()) << All(report);
    EXPECT_EQ(told->kind,
              rounding == Rounding::kFP16 ? FindingKind::kQuantized : FindingKind::kWeight);
    EXPECT_EQ(report.weights.at(id).bits, rounding == Rounding::kFP16 ? 16 : 0);
  }
}

}  // namespace
}  // namespace lockstep

#include "audit/exchanges.h"

#include <gtest/gtest.h>

#include "audit/audit_testing.h"
#include "audit/candidate_weights.h"
#include "model/apply_edit.h"

namespace lockstep {
namespace {

WeightId Of(Role role, int32_t layer) { return {role, Part::kWeight, layer, -1}; }

// The graph's MatMul `a` reads what `b` read, and the reverse.
void Exchanged(const OnnxModel& m, size_t a, size_t b, OnnxPatch& p) {
  const size_t one = NodeOf(m, "MatMul", a), other = NodeOf(m, "MatMul", b);
  p.inputs.push_back({one, 1, m.nodes()[other].inputs[1]});
  p.inputs.push_back({other, 1, m.nodes()[one].inputs[1]});
}

// The edit of each finding makes the reference what the candidate is.
void ExpectProven(const Pair& pair, const std::string& edit) {
  ASSERT_EQ(pair.report.findings.size(), 1u) << All(pair.report);
  ASSERT_TRUE(pair.report.findings[0].edit);
  EXPECT_EQ(ToString(*pair.report.findings[0].edit), edit);
  const Model edited = Must(Edited(pair.reference, *pair.report.findings[0].edit));
  const AuditReport report = Must(Audit(edited, pair.candidate));
  EXPECT_TRUE(report.findings.empty()) << All(report);
}

TEST(Exchanges, TwoRolesAreOneSwap) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) { Exchanged(m, 2, 3, p); });
  const Pair pair = faulty.LookAt();
  ExpectProven(pair, "weights: swap layers[0].gate_proj.weight with up_proj");
  EXPECT_TRUE(faulty.Mended(pair).findings.empty());
}

TEST(Exchanges, TwoLayersMatricesAreOneSwap) {
  const Faulty faulty([](const OnnxModel& m, OnnxPatch& p) { Exchanged(m, 1, 6, p); });
  const Pair pair = faulty.LookAt();
  ExpectProven(pair, "weights: swap layers[0].o_proj.weight with layers[1]");
  EXPECT_TRUE(faulty.Mended(pair).findings.empty());
}

TEST(Exchanges, ACircleOfThreeIsAChainOfSwaps) {
  std::map<WeightId, WeightResult> weights;
  const WeightId a = Of(Role::kOProj, 0), b = Of(Role::kOProj, 1), c = Of(Role::kOProj, 2);
  weights[a] = {.state = WeightState::kOther, .other = b};
  weights[b] = {.state = WeightState::kOther, .other = c};
  weights[c] = {.state = WeightState::kOther, .other = a};
  const auto told = TellExchanges(weights);
  ASSERT_EQ(told.size(), 1u);
  ASSERT_TRUE(told[0].raw.edit);
  EXPECT_EQ(ToString(*told[0].raw.edit),
            "weights: swap layers[0].o_proj.weight with layers[1]; "
            "weights: swap layers[1].o_proj.weight with layers[2]");
}

TEST(Exchanges, ACircleOfAnyLengthIsFoundOnce) {
  constexpr int32_t kLength = 200;
  std::map<WeightId, WeightResult> weights;
  for (int32_t i = 0; i < kLength; ++i)
    weights[Of(Role::kOProj, i)] = {.state = WeightState::kOther,
                                    .other = Of(Role::kOProj, (i + 1) % kLength)};
  // And one that leads into it.
  weights[Of(Role::kQProj, 0)] = {.state = WeightState::kOther, .other = Of(Role::kOProj, 7)};
  const auto found = ExchangesOf(weights);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].size(), static_cast<size_t>(kLength));
  EXPECT_EQ(found[0][0], Of(Role::kOProj, 0));
}

TEST(Exchanges, AChainThatDoesNotCloseIsNone) {
  std::map<WeightId, WeightResult> weights;
  const WeightId a = Of(Role::kOProj, 0), b = Of(Role::kOProj, 1);
  weights[a] = {.state = WeightState::kOther, .other = b};
  weights[b] = {.state = WeightState::kEqual};
  EXPECT_TRUE(ExchangesOf(weights).empty());
  weights[b] = {.state = WeightState::kOther, .other = b};
  EXPECT_TRUE(ExchangesOf(weights).empty());
}

// Checkpoint against checkpoint: the swap is named, and what it names is the whole difference.
TEST(Exchanges, OfCheckpointsAreNamed) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  for (const char* text : {"weights: swap layers[0].* with layers[1]",
                           "weights: swap layers[0].o_proj.weight with layers[1]",
                           "weights: swap layers[1].gate_proj.weight with up_proj"}) {
    const AuditReport report =
        Must(Audit(reference, Must(Edited(reference, Must(ParseEdit(text))))));
    ASSERT_EQ(report.findings.size(), 1u) << All(report);
    ASSERT_TRUE(report.findings[0].edit) << All(report);
    EXPECT_EQ(ToString(*report.findings[0].edit), text);
  }
}

TEST(Exchanges, EveryFindingSaysWhatWasExpectedAndFound) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  for (const char* text :
       {"weights: zero layers[1].up_proj.weight", "weights: scale layers[1].up_proj.weight by 2",
        "weights: take layers[1].up_proj.weight from gate_proj", "layers[0].mixer.rope = null",
        "layers[0].mixer.sliding_window = null", "lm_head.logit_softcap = 3",
        "weights: swap layers[0].* with layers[1]",
        "weights: round layers[0].o_proj.weight to two_decimals"}) {
    const AuditReport report =
        Must(Audit(reference, Must(Edited(reference, Must(ParseEdit(text))))));
    EXPECT_FALSE(report.findings.empty()) << text;
    for (const Finding& finding : report.findings) {
      EXPECT_FALSE(finding.expected.empty()) << finding.sentence;
      EXPECT_FALSE(finding.found.empty()) << finding.sentence;
      EXPECT_NE(finding.sentence.find("; expected "), std::string::npos) << finding.sentence;
    }
  }
}

// The export keeps a matrix of its own for the head that the checkpoint ties to its embeddings.
TEST(TiedHead, AFaultInItsOwnMatrixIsFoundProvedAndMended) {
  TestFolder scratch;
  const Pair whole = Look(kGemma / "checkpoint", kGemma / "mobius");
  ASSERT_TRUE(WriteRepair(whole.candidate, Must(PlanRepair(whole.candidate, whole.report)),
                          scratch / "healthy"));
  const OnnxModel healthy = Must(OnnxModel::Open(scratch / "healthy"));
  const AuditReport before = Must(Audit(whole.reference, healthy));
  ASSERT_TRUE(before.weights.contains(Of(Role::kLmHead, -1)));
  EXPECT_TRUE(before.findings.empty()) << All(before);
  OnnxPatch patch;
  Multiply(healthy, static_cast<size_t>(before.decoder.matrices.at(Of(Role::kLmHead, -1)).node),
           1.01, patch);
  ASSERT_TRUE(WriteOnnx(healthy, patch, scratch / "faulty"));
  const Pair pair = Look(kGemma / "checkpoint", scratch / "faulty");
  ASSERT_EQ(pair.report.findings.size(), 1u) << All(pair.report);
  EXPECT_NE(All(pair.report).find("lm_head.weight: scaled by 1.01"), std::string::npos)
      << All(pair.report);
  EXPECT_TRUE(pair.report.findings[0].repairable()) << pair.report.findings[0].how_to;
  const Model edited = Must(Edited(pair.reference, pair.report.findings[0].edit.value_or(Edit{})));
  EXPECT_TRUE(Must(Audit(edited, pair.candidate)).findings.empty());
  // A fault is not taken over as if it were a choice of precision.
  const CandidateWeights own = Must(WithWeightsOf(pair.reference, pair.candidate, pair.report));
  EXPECT_EQ(own.replaced, 0);
}

// Rounded to bf16 on the way and kept in fp32: not a choice of storage, and not taken over.
TEST(WithWeightsOf, WhatWasRoundedOnItsWayIsNotTakenOver) {
  Pair pair = Look(kGemma / "checkpoint", kGemma / "genai");
  const WeightId id = Of(Role::kUpProj, 0);
  pair.report.weights.at(id).state = WeightState::kRounded;
  pair.report.weights.at(id).bits = 0;
  EXPECT_EQ(Must(WithWeightsOf(pair.reference, pair.candidate, pair.report)).replaced, 0);
  pair.report.weights.at(id).bits = 16;
  EXPECT_EQ(Must(WithWeightsOf(pair.reference, pair.candidate, pair.report)).replaced, 1);
}

}  // namespace
}  // namespace lockstep

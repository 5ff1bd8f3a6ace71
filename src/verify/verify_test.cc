#include "verify/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "verify/report.h"

namespace lockstep {
namespace {

constexpr int64_t kVocab = 6;

TEST(CompareRows, ShiftingAllLogitsMovesThemButNotTheirDistribution) {
  const std::vector<double> a = {1, 4, 2, -3}, b = {1.5, 4.5, 2.5, -2.5};
  const RowDifference d = CompareRows(a, b);
  EXPECT_DOUBLE_EQ(d.max_abs, 0.5);
  EXPECT_NEAR(d.kl, 0, 1e-15);
  EXPECT_TRUE(d.same_top1);
  EXPECT_EQ(d.a.first, 1);
  EXPECT_DOUBLE_EQ(d.a.gap, 2);
}

TEST(CompareRows, KlIsThatOfTheDefinition) {
  const std::vector<double> a = {std::log(0.5), std::log(0.25), std::log(0.25)};
  const std::vector<double> b = {std::log(0.25), std::log(0.5), std::log(0.25)};
  const RowDifference d = CompareRows(a, b);
  EXPECT_NEAR(d.kl, 0.5 * std::log(2) - 0.25 * std::log(2), 1e-15);
  EXPECT_FALSE(d.same_top1);
}

TEST(CompareRows, NotANumberIsNeverEqual) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MaxAbsDifference(std::vector{nan, 1.0}, std::vector{nan, 1.0}), inf);
  EXPECT_EQ(MaxAbsDifference(std::vector{-inf, 1.0}, std::vector{-inf, 1.0}), 0);
  EXPECT_EQ(MaxAbsDifference(std::vector{-inf, 1.0}, std::vector{inf, 1.0}), inf);
}

TEST(FindTopTwo, TheLowestIdWinsAmongEquals) {
  const TopTwo top = FindTopTwo(std::vector<double>{0, 3, 1, 3});
  EXPECT_EQ(top.first, 1);
  EXPECT_EQ(top.gap, 0);
}

std::vector<double> RowFor(int32_t token, double gap) {
  std::vector<double> row(kVocab, 0.0);
  row[static_cast<size_t>(token)] = 1;
  row[static_cast<size_t>((token + 1) % kVocab)] = 1 - gap;
  return row;
}

PromptTrace RunOf(std::vector<int32_t> greedy, double noise = 1e-5, double gap = 0.5) {
  PromptTrace run{.name = "p"};
  run.ids = {1, 2};
  for (size_t k = 0; k < greedy.size(); ++k)
    run.steps[static_cast<int64_t>(k)] = TraceTensor{{kVocab}, RowFor(greedy[k], gap)};
  run.greedy = std::move(greedy);
  run.noise = noise;
  return run;
}

void Nudge(PromptTrace& run, int64_t step, double by) {
  std::get<std::vector<double>>(run.steps.at(step).values)[0] += by;
}

TEST(CompareRuns, WithinTheToleranceIsAMatch) {
  const PromptTrace a = RunOf({1, 2, 3});
  PromptTrace b = a;
  Nudge(b, 1, 0.9 * Tolerance(1e-5));
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kMatch) << c.sentence;
  EXPECT_EQ(c.greedy_equal, 3);
  EXPECT_EQ(c.WorstStep()->step, 1);
}

TEST(CompareRuns, BeyondTheToleranceDiffersAndNamesTheStep) {
  const PromptTrace a = RunOf({1, 2, 3});
  PromptTrace b = a;
  Nudge(b, 2, 1.1 * Tolerance(1e-5));
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  EXPECT_NE(c.sentence.find("greedy step 2"), std::string::npos) << c.sentence;
}

TEST(CompareRuns, TheReferencesNoiseDecidesAndNotTheCandidates) {
  const PromptTrace a = RunOf({1, 2, 3}, 1e-7);
  PromptTrace b = RunOf({1, 2, 3}, 2e-5);
  Nudge(b, 0, 1e-4);
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  EXPECT_EQ(c.noise, 1e-7);
  EXPECT_EQ(c.noise_source, NoiseSource::kRecorded);
  EXPECT_EQ(CompareRuns(a, b, 20, {.reference = true}).noise_source, NoiseSource::kMeasured);
  EXPECT_EQ(CompareRuns(b, a, 20).verdict, Verdict::kMatch);
}

TEST(CompareRuns, ACandidatesNoiseCountsOnlyWhereItWasMeasured) {
  PromptTrace a = RunOf({1, 2, 3});
  a.noise.reset();
  PromptTrace b = RunOf({1, 2, 3}, 1e-4);
  Nudge(b, 0, 5e-4);
  const PromptComparison recorded = CompareRuns(a, b, 20);
  EXPECT_EQ(recorded.verdict, Verdict::kDiffers);
  EXPECT_EQ(recorded.noise_source, NoiseSource::kAssumed);
  const PromptComparison measured = CompareRuns(a, b, 20, {.candidate = true});
  EXPECT_EQ(measured.verdict, Verdict::kMatch) << measured.sentence;
  EXPECT_EQ(measured.noise_source, NoiseSource::kMeasuredOnCandidate);
}

TEST(CompareRuns, ARecordingIsBelievedItsNoiseAsFarAsThatIsPlausible) {
  for (const double claimed : {1.0, 1e9}) {
    const PromptTrace a = RunOf({1, 2, 3}, claimed);
    PromptTrace b = RunOf({1, 2, 3}, 1e-6);
    Nudge(b, 1, 0.1);
    EXPECT_FALSE(PlausibleNoise(a));
    for (const Measured measured : {Measured{}, Measured{.candidate = true}}) {
      const PromptComparison c = CompareRuns(a, b, 20, measured);
      EXPECT_EQ(c.verdict, Verdict::kDiffers) << claimed;
      EXPECT_EQ(c.noise_source, NoiseSource::kBounded);
      EXPECT_EQ(c.claimed_noise, claimed);
      EXPECT_LT(c.tolerance, 1e-2);
    }
  }
  // A model that is badly conditioned: the candidate, which runs, measures as much.
  const PromptTrace a = RunOf({1, 2, 3}, 0.02), b = RunOf({1, 2, 3}, 0.01);
  const PromptComparison c = CompareRuns(a, b, 20, {.candidate = true});
  EXPECT_EQ(c.noise, 0.02);
  EXPECT_EQ(c.noise_source, NoiseSource::kRecorded);
}

TEST(CompareRuns, NoiseThatIsNoNumberIsNoTolerance) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double noise : {inf, -inf, std::numeric_limits<double>::quiet_NaN(), 1e308}) {
    const PromptTrace a = RunOf({1, 2, 3}, noise);
    PromptTrace b = RunOf({1, 2, 3}, noise);
    Nudge(b, 1, 0.1);
    for (const Measured measured : {Measured{}, Measured{true, true}}) {
      const PromptComparison c = CompareRuns(a, b, 20, measured);
      EXPECT_EQ(c.verdict, Verdict::kDiffers) << noise;
      EXPECT_LT(c.tolerance, 1e-4) << noise;
    }
  }
}

TEST(CompareRuns, ALogitThatIsNoNumberFailsItsSubject) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {inf, -inf, std::numeric_limits<double>::quiet_NaN()})
    for (const bool in_reference : {true, false})
      for (const bool in_both : {true, false}) {
        PromptTrace a = RunOf({1, 2, 3}), b = RunOf({1, 2, 3});
        if (in_reference || in_both) Nudge(a, 1, bad);
        if (!in_reference || in_both) Nudge(b, 1, bad);
        const PromptComparison c = CompareRuns(a, b, 20);
        EXPECT_EQ(c.verdict, Verdict::kSubjectFailed) << bad;
        EXPECT_NE(c.sentence.find("greedy step 1"), std::string::npos) << c.sentence;
      }
  PromptTrace a = RunOf({1}), b = RunOf({1});
  a.logits = TraceTensor{{2, kVocab}, std::vector<double>(2 * kVocab, 0.0)};
  b.logits = a.logits;
  std::get<std::vector<double>>(a.logits->values)[3] = inf;
  std::get<std::vector<double>>(b.logits->values)[3] = inf;
  EXPECT_EQ(CompareRuns(a, b, 20).verdict, Verdict::kSubjectFailed);
}

TEST(CompareRuns, NothingIsComparedAfterTheTokensPart) {
  const PromptTrace a = RunOf({1, 2, 3, 4});
  PromptTrace b = RunOf({1, 2, 0, 5});
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  ASSERT_TRUE(c.parting);
  EXPECT_EQ(c.parting->step, 2);
  EXPECT_FALSE(c.parting->near_tie);
  EXPECT_EQ(c.greedy_equal, 2);
  EXPECT_EQ(c.steps.back().step, 2);
}

TEST(CompareRuns, AFlipWithinRoundingIsANearTie) {
  const double gap = 1e-6;  // far below the noise
  const PromptTrace a = RunOf({1, 2, 3}, 1e-5, gap);
  PromptTrace b = RunOf({1, 2, 3}, 1e-5, gap);
  b.greedy[2] = 4;
  auto& row = std::get<std::vector<double>>(b.steps.at(2).values);
  std::swap(row[3], row[4]);
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kMatch) << c.sentence;
  ASSERT_TRUE(c.parting);
  EXPECT_TRUE(c.parting->near_tie);
}

// A recording that keeps no logits of the step where the tokens part does not say how close it was.
TEST(CompareRuns, WithoutTheReferencesLogitsOfThatStepNothingIsANearTie) {
  PromptTrace a = RunOf({1, 2, 3}, 1e-5, 1e-6);
  a.min_top2_gap = 1e-6;
  PromptTrace b = RunOf({1, 2, 4}, 1e-5, 1e-6);
  a.steps.erase(2);
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  ASSERT_TRUE(c.parting);
  EXPECT_FALSE(c.parting->near_tie);
  EXPECT_FALSE(c.parting->gap);
  EXPECT_NE(c.sentence.find("unknown"), std::string::npos) << c.sentence;
}

// The two best are close, but the candidate took a third.
TEST(CompareRuns, ATokenOutsideTheTieIsNoNearTie) {
  const PromptTrace a = RunOf({1, 2, 3}, 1e-5, 1e-6);
  PromptTrace b = RunOf({1, 2, 0}, 1e-5, 1e-6);
  b.steps.erase(2);
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  EXPECT_EQ(c.parting->gap, 1);
}

TEST(CompareRuns, WithoutACommonPositionThereIsNoVerdictOfEquality) {
  PromptTrace a = RunOf({1, 2, 3}), b = RunOf({1, 2, 3});
  a.steps.erase(0), a.steps.erase(2);
  b.steps.erase(1);
  EXPECT_EQ(CompareRuns(a, b, 20).verdict, Verdict::kNotComparable);
}

TEST(CompareRuns, AnUnmeasuredNoiseIsAssumedAndSaid) {
  PromptTrace a = RunOf({1}), b = RunOf({1});
  a.noise.reset();
  b.noise.reset();
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.noise_source, NoiseSource::kAssumed);
  EXPECT_GT(c.noise, 0);
  EXPECT_LT(c.noise, 1e-5);
}

TEST(CompareRuns, PositionsOfThePromptCount) {
  PromptTrace a = RunOf({1}), b = RunOf({1});
  a.logits = TraceTensor{{2, kVocab}, std::vector<double>(2 * kVocab, 0.0)};
  b.logits = a.logits;
  std::get<std::vector<double>>(b.logits->values)[3] = 0.1;
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  EXPECT_EQ(c.positions_max_abs, 0.1);
}

TEST(CompareRuns, BeyondTheToleranceTheRoundingExplainsSoMuchAndNoMore) {
  const PromptTrace a = RunOf({1, 2, 3});
  const RoundingEffect codes{Precision::kQuantizedActivations, 0.01};
  for (const auto& [share, verdict] : {std::pair{0.9, Verdict::kQuantizedActivations},
                                       {kRoundingMultiple * 0.99, Verdict::kQuantizedActivations},
                                       {kRoundingMultiple * 1.1, Verdict::kDiffers}}) {
    PromptTrace b = a;
    Nudge(b, 1, share * codes.max_abs);
    const PromptComparison c = CompareRuns(a, b, 20, {}, codes);
    EXPECT_EQ(c.verdict, verdict) << share << c.sentence;
    EXPECT_NE(c.sentence.find("times what the rounding does"), std::string::npos) << c.sentence;
    EXPECT_EQ(CompareRuns(a, b, 20).verdict, Verdict::kDiffers);
  }
  PromptTrace b = a;
  Nudge(b, 1, 0.01);
  EXPECT_EQ(CompareRuns(a, b, 20, {}, RoundingEffect{Precision::kRounded, 0.01}).verdict,
            Verdict::kPrecision);
  // What needs no explanation is a match.
  EXPECT_EQ(CompareRuns(a, a, 20, {}, codes).verdict, Verdict::kMatch);
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_EQ(CompareRuns(a, b, 20, {}, RoundingEffect{Precision::kRounded, bad}).verdict,
              Verdict::kDiffers);
}

TEST(CompareRuns, ATieForWhoRoundsMoreIsNoMatch) {
  const PromptTrace a = RunOf({1, 2, 3}, 1e-5, 0.03);
  PromptTrace b = a;
  b.greedy[2] = 4;
  auto& row = std::get<std::vector<double>>(b.steps.at(2).values);
  std::swap(row[3], row[4]);
  EXPECT_EQ(CompareRuns(a, b, 20).verdict, Verdict::kDiffers);
  const RoundingEffect codes{Precision::kQuantizedActivations, 0.02};
  const PromptComparison c = CompareRuns(a, b, 20, {}, codes);
  EXPECT_EQ(c.verdict, Verdict::kQuantizedActivations) << c.sentence;
  EXPECT_TRUE(c.parting->near_tie);
  EXPECT_EQ(
      CompareRuns(a, b, 20, {}, RoundingEffect{Precision::kQuantizedActivations, 1e-3}).verdict,
      Verdict::kDiffers);
}

TEST(CompareShown, IsOfTheIdsThatBothShow) {
  const SparseRow a{{4, 2, 9}, {std::log(0.5), std::log(0.25), std::log(0.125)}};
  const SparseRow b{{2, 4, 7}, {std::log(0.5), std::log(0.25), std::log(0.2)}};
  const auto d = CompareShown(a, b);
  ASSERT_TRUE(d);
  EXPECT_NEAR(d->max_abs, std::log(2), 1e-12);
  EXPECT_EQ(d->a.first, 4);
  EXPECT_EQ(d->b.first, 2);
  EXPECT_FALSE(d->same_top1);
  // Of {4}, {2}, and all the others together: 1/4 each.
  EXPECT_NEAR(d->kl, 0.5 * std::log(2) - 0.25 * std::log(2), 1e-12);
  EXPECT_FALSE(CompareShown(a, {{1}, {-0.5}}));
}

TEST(CompareRuns, WhatASideShowsIsComparedWithTheOthersLogits) {
  const PromptTrace a = RunOf({1, 2, 3});
  PromptTrace b = RunOf({1, 2, 3});
  for (int64_t k = 0; k < 3; ++k)
    b.shown[k] =
        ShownOf(a.StepLogits(k), std::vector<int32_t>{a.greedy[static_cast<size_t>(k)], 5});
  b.steps.clear();
  for (const bool swapped : {false, true}) {
    const PromptComparison c = swapped ? CompareRuns(b, a, 20) : CompareRuns(a, b, 20);
    EXPECT_EQ(c.verdict, Verdict::kMatch) << c.sentence;
    EXPECT_EQ(c.steps.size(), 3u);
    EXPECT_TRUE(c.shown_only);
  }
  b.shown[1].logprobs[1] += 0.01;
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  EXPECT_NE(c.sentence.find("greedy step 1"), std::string::npos) << c.sentence;
  b.shown[1].ids[1] = kVocab;
  EXPECT_NE(CompareRuns(a, b, 20).sentence.find("another vocabulary"), std::string::npos);
  b.shown[1].ids[1] = 5;
  b.shown[1].logprobs[1] = std::nan("");
  EXPECT_EQ(CompareRuns(a, b, 20).verdict, Verdict::kSubjectFailed);
}

TEST(CompareRuns, LogitsOfAnotherWidthAreAnotherModel) {
  const PromptTrace a = RunOf({1, 2, 3});
  PromptTrace b = RunOf({1, 2, 3});
  b.steps[0] = TraceTensor{{kVocab + 1}, std::vector<double>(kVocab + 1, 0.0)};
  const PromptComparison c = CompareRuns(a, b, 20);
  EXPECT_EQ(c.verdict, Verdict::kDiffers);
  EXPECT_NE(c.sentence.find("another vocabulary"), std::string::npos) << c.sentence;
}

TEST(CompareRuns, HiddenStatesAreComparedLayerByLayerInEitherForm) {
  PromptTrace a = RunOf({1}), b = RunOf({1});
  a.hidden = TraceTensor{{2, 2, 1}, std::vector<double>{9, 1, 9, 2}};  // [layers + 1, ids, hidden]
  b.hidden_last = TraceTensor{{2, 1}, std::vector<double>{1, 2.5}};
  EXPECT_EQ(CompareRuns(a, b, 20).layers_max_abs, (std::vector<double>{0, 0.5}));
  b.hidden_last->shape = {1, 2};
  EXPECT_TRUE(CompareRuns(a, b, 20).layers_max_abs.empty());
}

// A subject that answers as it is told.
class Fake : public Subject {
 public:
  Fake(std::string name, int32_t first_id) : name_(std::move(name)), first_id_(first_id) {}
  std::string Name() const override { return name_; }
  Abilities Can() const override {
    return {.any_prompt = true,
            .tokenizes = true,
            .renders_chat = !prefix.empty(),
            .precision = precision};
  }
  int64_t vocab_size() const override { return vocab; }
  std::vector<std::string> Notes() const override { return notes; }
  Result<std::string> RenderChat(std::string_view text) const override {
    return prefix + std::string(text);
  }
  Result<std::vector<int32_t>> Tokenize(const Rendered& text) const override {
    return std::vector<int32_t>{first_id_, static_cast<int32_t>(text.text.size() % kVocab)};
  }
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override {
    if (!progress("running", 0, 1)) return tl::unexpected(Interrupted());
    if (fails) return InputError("{}: no memory", name_);
    PromptTrace run = RunOf({1, 2, 3});
    run.ids = probe.ids;
    Nudge(run, 0, offset);
    return run;
  }

  Result<double> MeasureRounding(const PromptTrace&, double, const Progress&) override {
    if (!rounding) return InputError("{}: no memory", name_);
    return *rounding;
  }

  Precision precision = Precision::kFull;
  std::optional<double> rounding;
  int64_t vocab = kVocab;
  std::vector<std::string> notes;
  std::string prefix;
  bool fails = false;
  double offset = 0;

 private:
  std::string name_;
  int32_t first_id_;
};

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

TEST(Verify, EqualSubjectsMatchOnEveryBuiltInPrompt) {
  Fake a("a", 1), b("b", 1);
  const auto v = Verify(a, b, {}, kGoOn);
  ASSERT_TRUE(v) << v.error().message;
  EXPECT_EQ(v->verdict, Verdict::kMatch);
  EXPECT_EQ(v->prompts.size(), 5u);
  EXPECT_EQ(ToJson(*v)["verdict"], "match");
}

TEST(Verify, OneDifferentLogitDiffers) {
  Fake a("a", 1), b("b", 1);
  b.offset = 0.01;
  EXPECT_EQ(Verify(a, b, {}, kGoOn)->verdict, Verdict::kDiffers);
}

TEST(Verify, WhatASideRoundsIsMeasuredWhereItIsNeeded) {
  for (const bool candidate : {true, false}) {
    Fake a("a", 1), b("b", 1);
    Fake& rough = candidate ? b : a;
    rough.precision = Precision::kQuantizedActivations;
    EXPECT_EQ(Verify(a, b, {}, kGoOn)->verdict, Verdict::kMatch);  // nothing to explain
    b.offset = 0.01;
    const auto unknown = Verify(a, b, {}, kGoOn);
    EXPECT_EQ(unknown->verdict, Verdict::kDiffers);
    EXPECT_NE(unknown->notes.front().find("no memory"), std::string::npos);
    rough.rounding = 0.01;
    const auto v = Verify(a, b, {}, kGoOn);
    EXPECT_EQ(v->verdict, Verdict::kQuantizedActivations);
    EXPECT_NE(v->sentence.find("less exactly"), std::string::npos) << v->sentence;
    EXPECT_EQ(ToJson(*v)["prompts"][0]["rounding"], 0.01);
    rough.rounding = 1e-3;
    EXPECT_EQ(Verify(a, b, {}, kGoOn)->verdict, Verdict::kDiffers);
  }
}

TEST(Verify, AFailingSubjectIsAVerdictWithItsSentence) {
  Fake a("a", 1), b("b", 1);
  b.fails = true;
  const auto v = Verify(a, b, {}, kGoOn);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->verdict, Verdict::kSubjectFailed);
  EXPECT_NE(v->sentence.find("no memory"), std::string::npos);
}

TEST(Verify, OtherIdsAreDifferentTokensEvenWhereTheLogitsAgree) {
  Fake a("a", 1), b("b", 4);
  const auto v = Verify(a, b, {}, kGoOn);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->verdict, Verdict::kDifferentTokens);
  EXPECT_NE(v->sentence.find("position 0"), std::string::npos) << v->sentence;
  EXPECT_NE(v->sentence.find("logits match"), std::string::npos) << v->sentence;
}

TEST(Verify, DifferentTemplatesAreDifferentTokens) {
  Fake a("a", 1), b("b", 1);
  a.prefix = "<user>";
  b.prefix = "<|user>";
  EXPECT_EQ(Verify(a, b, {}, kGoOn)->verdict, Verdict::kDifferentTokens);
  EXPECT_EQ(Verify(a, b, {.chat = false}, kGoOn)->verdict, Verdict::kMatch);
}

TEST(Verify, DifferentVocabulariesAreDifferentModels) {
  Fake a("a", 1), b("b", 1);
  b.vocab = 7;
  const auto v = Verify(a, b, {}, kGoOn);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->verdict, Verdict::kDiffers);
  EXPECT_NE(v->sentence.find("6 tokens, the candidate for 7"), std::string::npos) << v->sentence;
}

TEST(Verify, NotesOfBothSidesAreTold) {
  Fake a("a", 1), b("b", 1);
  a.notes = {"one"};
  b.notes = {"two"};
  const auto v = Verify(a, b, {}, kGoOn);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->notes, (std::vector<std::string>{"reference: one", "candidate: two"}));
  EXPECT_EQ(ToJson(*v)["notes"].size(), 2u);
}

TEST(Verify, StopsWhenAsked) {
  Fake a("a", 1), b("b", 1);
  const auto v = Verify(a, b, {}, [](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_FALSE(v);
  EXPECT_TRUE(IsInterrupted(v.error()));
  EXPECT_FALSE(IsInterrupted({ErrorCode::kInput, "interrupted"}));
}

}  // namespace
}  // namespace lockstep

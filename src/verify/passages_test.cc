#include "verify/passages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "verify/report.h"
#include "verify/report_html.h"
#include "verify/report_junit.h"

namespace lockstep {
namespace {

constexpr int64_t kVocab = 11;
constexpr Passage kAll[] = {Passage::kChunked, Passage::kRewound, Passage::kInterleaved,
                            Passage::kPaddedBatch};

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

// A "model" whose logits follow from the ids so far.
std::vector<double> LogitsAfter(std::span<const int32_t> ids) {
  double state = 0.1;
  for (const int32_t id : ids) state = std::fmod(state * 1.7 + 0.31 * (id + 1), 1.0);
  std::vector<double> row;
  for (int64_t v = 0; v < kVocab; ++v)
    row.push_back(std::sin(40 * state + static_cast<double>(v * v)));
  return row;
}

// Runs it by every way, and is wrong by `wrong` alone.
class Fake : public Subject {
 public:
  std::string Name() const override { return "fake"; }
  Abilities Can() const override {
    return {.any_prompt = true,
            .all_positions = true,
            .rounds_activations = rounds,
            .passages = can,
            .context = context};
  }
  int64_t vocab_size() const override { return kVocab; }
  const ModelSpec* spec() const override { return facts ? &*facts : nullptr; }
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override {
    if (!progress("running", 0, 1)) return tl::unexpected(Interrupted());
    asked.push_back(probe);
    const bool off = probe.passage == wrong;
    if (off && refuses) return UnsupportedError("the mask only knows whole prompts");
    if (off && breaks) return InputError("Non-zero status code from GroupQueryAttention");
    PromptTrace run{.name = probe.name};
    run.ids = probe.ids;
    std::vector<int32_t> held = probe.ids;
    const auto row_of = [&](size_t length, bool lost) {
      std::vector<double> row = LogitsAfter(std::span(held).first(length));
      if (off && lost) row[0] += by;
      return row;
    };
    if (probe.all_positions) {
      std::vector<double> all;
      for (size_t i = 0; i < held.size(); ++i)
        for (const double x : row_of(i + 1, i >= first_wrong)) all.push_back(x);
      run.logits = TraceTensor{{static_cast<int64_t>(held.size()), kVocab}, std::move(all)};
    }
    // A rewind shows only behind the prompt.
    bool lost = probe.passage != Passage::kRewound;
    for (int64_t k = 0; k < std::max<int64_t>(probe.steps, 1); ++k) {
      std::vector<double> row = row_of(held.size(), lost);
      if (k < probe.steps) run.greedy.push_back(FindTopTwo(row).first);
      if (k < probe.steps) held.push_back(run.greedy.back());
      run.steps[k] = TraceTensor{{kVocab}, std::move(row)};
      lost = true;
    }
    run.noise = noise;
    return run;
  }

  std::vector<Passage> can{std::begin(kAll), std::end(kAll)};
  std::optional<Passage> wrong;
  double by = 1e-3;
  size_t first_wrong = 2;  // position of the prompt
  bool refuses = false, breaks = false, rounds = false;
  double noise = 1e-6;
  std::optional<int64_t> context;
  std::optional<ModelSpec> facts;
  std::vector<Probe> asked;
};

Verification Compared(Fake& reference, Fake& candidate, const VerifyOptions& options = {}) {
  auto v = Verify(reference, candidate, options, kGoOn);
  EXPECT_TRUE(v) << v.error().message;
  return v ? *std::move(v) : Verification{};
}

TEST(Passages, WhoIsRightByEveryWayIsAskedByEveryWayAndMatches) {
  Fake a, b;
  const Verification v = Compared(a, b);
  EXPECT_EQ(v.verdict, Verdict::kMatch) << v.sentence;
  std::set<Passage> seen;
  for (const PassageComparison& passage : v.passages) {
    if (passage.left_out) continue;
    seen.insert(passage.passage);
    EXPECT_EQ(passage.verdict, Verdict::kMatch) << passage.how << passage.sentence;
    EXPECT_EQ(passage.max_abs, 0);
    EXPECT_GT(passage.allowed, 0);
  }
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_TRUE(std::ranges::all_of(a.asked, [](const Probe& probe) {
    return probe.passage == Passage::kWhole;
  })) << "the reference is asked for nothing new";
  EXPECT_EQ(ToJson(v)["passages"].size(), v.passages.size());
}

TEST(Passages, WhatIsWrongByOneWayAloneDiffersAndNamesIt) {
  const std::pair<Passage, std::string> ways[] = {
      {Passage::kChunked, "in calls of 1 + 3 + 2 + 1 tokens"},
      {Passage::kRewound, "3 other tokens follow"},
      {Passage::kInterleaved, "another sequence"},
      {Passage::kPaddedBatch, "shares a batch with one of 10 tokens"}};
  for (const auto& [wrong, words] : ways) {
    Fake a, b;
    b.wrong = wrong;
    const Verification v = Compared(a, b);
    EXPECT_EQ(v.verdict, Verdict::kDiffers) << words;
    EXPECT_NE(v.sentence.find("differs only when"), std::string::npos) << v.sentence;
    EXPECT_NE(v.sentence.find(words), std::string::npos) << v.sentence;
    for (const PromptComparison& prompt : v.prompts) EXPECT_EQ(prompt.verdict, Verdict::kMatch);
    for (const PassageComparison& passage : v.passages)
      if (!passage.left_out) {
        EXPECT_EQ(passage.verdict == Verdict::kDiffers, passage.passage == wrong) << passage.how;
      }
    const bool in_the_prompt = wrong == Passage::kChunked || wrong == Passage::kPaddedBatch;
    EXPECT_EQ(v.sentence.find("from position 2 of the prompt on") != std::string::npos,
              in_the_prompt)
        << v.sentence;
    const std::string xml = JUnitReport(std::span(&v, 1));
    EXPECT_NE(xml.find(fmt::format("({})", PassageName(wrong))), std::string::npos);
    EXPECT_NE(xml.find("<failure"), std::string::npos);
    const Reported reported{v, {}};
    EXPECT_NE(HtmlReport(std::span(&reported, 1)).find(words), std::string::npos);
  }
}

TEST(Passages, NumbersThatAreNoneByOneWayAreADifference) {
  Fake a, b;
  b.wrong = Passage::kPaddedBatch;
  b.by = std::numeric_limits<double>::quiet_NaN();
  const Verification v = Compared(a, b);
  EXPECT_EQ(v.verdict, Verdict::kDiffers);
  EXPECT_NE(v.sentence.find("which is no number"), std::string::npos) << v.sentence;
}

TEST(Passages, WhatCannotBeTakenIsANoteWithTheCandidatesWords) {
  Fake a, b;
  b.wrong = Passage::kChunked;
  b.refuses = true;
  const Verification v = Compared(a, b);
  EXPECT_EQ(v.verdict, Verdict::kMatch) << v.sentence;
  EXPECT_EQ(std::ranges::count_if(v.notes,
                                  [](const std::string& note) {
                                    return note.find("the mask only knows whole prompts") !=
                                           std::string::npos;
                                  }),
            1);
  EXPECT_EQ(JUnitReport(std::span(&v, 1)).find("(parts)"), std::string::npos);
  EXPECT_EQ(std::ranges::count_if(b.asked, [](auto& p) { return p.passage == Passage::kChunked; }),
            1)
      << "is not asked again";
}

TEST(Passages, WhatBreaksOnAnAnnouncedWayFailsAndIsToldAsThat) {
  for (const Passage wrong : kAll) {
    Fake a, b;
    b.wrong = wrong;
    b.breaks = true;
    const Verification v = Compared(a, b);
    EXPECT_EQ(v.verdict, Verdict::kDiffers) << PassageName(wrong);
    EXPECT_NE(v.sentence.find("gives the reference's logits when a prompt comes whole, and it "
                              "cannot be run when"),
              std::string::npos)
        << v.sentence;
    EXPECT_NE(v.sentence.find("Non-zero status code"), std::string::npos) << v.sentence;
    EXPECT_EQ(v.sentence.find("differs"), std::string::npos) << v.sentence;
    for (const PromptComparison& prompt : v.prompts) EXPECT_EQ(prompt.verdict, Verdict::kMatch);
    EXPECT_EQ(std::ranges::count_if(b.asked, [&](auto& p) { return p.passage == wrong; }), 1)
        << "is not asked again";
    EXPECT_NE(JUnitReport(std::span(&v, 1)).find("<error"), std::string::npos);
  }
}

TEST(Passages, WhatIsRefusedLeavesAnotherWayToBeAsked) {
  Fake a, b;
  VerifyOptions one;
  one.steps = 1;  // the plain runs cost next to nothing
  one.prompts = {{"one", "", std::vector<int32_t>(7, 1)}};
  b.can = {Passage::kChunked, Passage::kInterleaved};
  b.wrong = Passage::kChunked;
  b.refuses = true;
  const Verification v = Compared(a, b, one);
  EXPECT_EQ(
      std::ranges::count_if(b.asked, [](auto& p) { return p.passage == Passage::kInterleaved; }),
      1);
  // And the one that is asked leaves out the next, which is told.
  Fake c;
  c.can = {Passage::kChunked, Passage::kInterleaved};
  const Verification w = Compared(a, c, one);
  EXPECT_TRUE(std::ranges::any_of(w.notes, [](const std::string& note) {
    return note.find("not asked by interleaved (one): with it the other ways would cost more") !=
           std::string::npos;
  })) << fmt::format("{}", fmt::join(w.notes, "\n"));
}

TEST(Passages, WhatPassesTheContextIsLeftOutAndTold) {
  Fake a, b;
  VerifyOptions one;
  one.prompts = {{"one", "", std::vector<int32_t>(7, 1)}};
  b.context = 10;  // the prompt, and three that the steps feed
  const Verification v = Compared(a, b, one);
  std::set<Passage> asked;
  for (const Probe& probe : b.asked) asked.insert(probe.passage);
  EXPECT_TRUE(asked.contains(Passage::kChunked));
  EXPECT_TRUE(asked.contains(Passage::kRewound));  // 7 + 3
  EXPECT_FALSE(asked.contains(Passage::kInterleaved) || asked.contains(Passage::kPaddedBatch));
  EXPECT_TRUE(std::ranges::any_of(v.notes, [](const std::string& note) {
    return note.find(
               "interleaved (one), padded_batch (one): it needs 13 positions, and the "
               "context has 10") != std::string::npos;
  })) << fmt::format("{}", fmt::join(v.notes, "\n"));
}

// A candidate whose logits are off by 0.01 by every way.
class OffByEveryWay : public Fake {
 public:
  Result<PromptTrace> Run(const Probe& probe, const Progress& progress) override {
    LS_TRY(PromptTrace run, Fake::Run(probe, progress));
    for (auto& [step, row] : run.steps) std::get<std::vector<double>>(row.values)[1] += 0.01;
    return run;
  }
};

TEST(Passages, OnlyRoundedActivationsExcuseAPartOfThePlainDifference) {
  for (const bool rounds : {false, true}) {
    Fake a;
    OffByEveryWay off;
    off.rounds = rounds;
    off.wrong = Passage::kChunked;
    off.by = 0.01 / 20;
    const Verification v = Compared(a, off);
    EXPECT_EQ(v.verdict, Verdict::kDiffers);
    EXPECT_EQ(v.sentence.find("other logits still") == std::string::npos, rounds) << v.sentence;
  }
}

TEST(Passages, TheirToleranceIsThePlainRunsOwn) {
  // A reference that measures it; beyond what a recording could claim.
  class Measures : public Fake {
   public:
    Abilities Can() const override {
      Abilities can = Fake::Can();
      can.measures_noise = true;
      return can;
    }
  } a;
  a.noise = 0.01;
  Fake b;
  const Verification v = Compared(a, b);
  ASSERT_FALSE(v.passages.empty());
  for (const PassageComparison& passage : v.passages)
    if (!passage.left_out) {
      EXPECT_EQ(passage.allowed, v.prompts[0].tolerance) << passage.how;
    }
}

TEST(Passages, NobodyIsAskedForMoreThanItCanOrThanIsWanted) {
  Fake a, b;
  b.can = {Passage::kInterleaved};
  const Verification seen = Compared(a, b);
  ASSERT_FALSE(seen.passages.empty());
  for (const PassageComparison& passage : seen.passages)
    EXPECT_EQ(passage.passage, Passage::kInterleaved);
  b.can.clear();
  EXPECT_TRUE(Compared(a, b).passages.empty());
  b.can = {Passage::kInterleaved};
  EXPECT_TRUE(Compared(a, b, {.passages = false}).passages.empty());
}

TEST(Passages, ADifferenceOfThePlainRunsIsNoneOfThePassages) {
  Fake a;
  // Every way is off by as much: the model differs, and its cache is well.
  OffByEveryWay off;
  const Verification v = Compared(a, off);
  EXPECT_EQ(v.verdict, Verdict::kDiffers);
  ASSERT_FALSE(v.passages.empty());
  for (const PassageComparison& passage : v.passages)
    if (!passage.left_out) {
      EXPECT_EQ(passage.verdict, Verdict::kMatch) << passage.sentence;
    }
  EXPECT_EQ(v.sentence.find("other logits still"), std::string::npos) << v.sentence;
  // And one that is off further by one way is told of that too.
  off.wrong = Passage::kRewound;
  off.by = 0.1;
  EXPECT_NE(Compared(a, off).sentence.find("other logits still when 3 other tokens"),
            std::string::npos);
}

TEST(Passages, WhereNumbersFollowFromTheCallOnlyTurnsAreTaken) {
  Fake a, b;
  AttentionSpec attention;
  attention.rope = RopeSpec{.scaling = DynamicScaling{}};
  a.facts = ModelSpec{};
  a.facts->layers.push_back({.mixer = attention});
  const Verification v = Compared(a, b);
  ASSERT_FALSE(v.passages.empty());
  for (const PassageComparison& passage : v.passages)
    EXPECT_EQ(passage.passage, Passage::kInterleaved);
}

TEST(Passages, ThePromptsAreTheShortestAndOneThatCrossesTheWindow) {
  ProbePlan plan;
  for (const size_t length : {30, 1, 6, 40, 20, 9, 70, 200})
    plan.probes.push_back({.name = "p", .ids = std::vector<int32_t>(length, 1)});
  plan.token_faults.resize(plan.probes.size());
  EXPECT_EQ(ProbesForPassages(plan, nullptr), (std::vector<size_t>{2, 6}));
  ModelSpec spec;
  AttentionSpec attention;
  attention.sliding_window = 16;
  spec.layers.push_back({.mixer = attention});
  EXPECT_EQ(ProbesForPassages(plan, &spec), (std::vector<size_t>{2, 3}));
  std::get<AttentionSpec>(spec.layers[0].mixer).sliding_window = 190;
  EXPECT_EQ(ProbesForPassages(plan, &spec), (std::vector<size_t>{2, 7}));
  plan.probes.resize(2);
  plan.probes[0].ids.resize(3);
  EXPECT_EQ(ProbesForPassages(plan, nullptr), (std::vector<size_t>{0}));
}

TEST(Passages, TheyCostLessThanHalfOfThePlainRuns) {
  Fake a, b;
  VerifyOptions one;
  one.prompts = {{"one", "", std::vector<int32_t>(7, 1)}};
  const Verification v = Compared(a, b, one);
  ASSERT_FALSE(v.passages.empty());
  // Calls and tokens, as the ways themselves take them; a call costs as much as 16 tokens.
  const auto cost = [](const Fake& fake, bool plain) {
    int64_t sum = 0;
    for (const Probe& p : fake.asked) {
      if ((p.passage == Passage::kWhole) != plain || p.all_positions) continue;
      const int64_t fed = std::max<int64_t>(p.steps, 1) - 1;
      const auto ids = static_cast<int64_t>(p.ids.size() + p.other.size());
      const bool both = p.passage == Passage::kInterleaved || p.passage == Passage::kPaddedBatch;
      int64_t calls = std::max<int64_t>(static_cast<int64_t>(p.parts.size()), 1) + fed;
      if (p.passage == Passage::kRewound) ++calls;
      if (p.passage == Passage::kInterleaved) calls = 2 * (1 + fed);
      sum += 16 * calls + ids + (both ? 2 * fed : fed);
    }
    return sum;
  };
  EXPECT_LT(2 * cost(b, false), cost(a, true) + cost(b, true));
  EXPECT_GT(cost(b, false), 0);
}

TEST(Passages, EveryWayHasItsName) {
  for (const Passage passage : kAll) EXPECT_EQ(PassageNamed(PassageName(passage)), passage);
  EXPECT_EQ(PassageNamed("whole"), Passage::kWhole);
  EXPECT_FALSE(PassageNamed("sideways"));
}

}  // namespace
}  // namespace lockstep

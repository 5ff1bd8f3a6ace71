#include "verify/power.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "model/apply_edit.h"
#include "reference/interpreter.h"
#include "verify/compare.h"
#include "verify/probes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

// The interpreter as a subject, and no more: subjects/ lie above this folder.
class Runs : public Subject {
 public:
  Runs(const Model& model, ThreadPool& pool, const RunSpec& run = {})
      : model_(model), interpreter_(model.spec, model.weights, pool, run) {}
  std::string Name() const override { return "runs"; }
  Abilities Can() const override { return {.any_prompt = true}; }
  int64_t vocab_size() const override { return model_.spec.embedding.vocab_size; }
  Result<PromptTrace> Run(const Probe& probe, const Progress&) override {
    PromptTrace trace{.name = probe.name, .ids = probe.ids};
    Sequence<float> sequence = interpreter_.NewSequence();
    std::vector<int32_t> ids = probe.ids;
    for (int64_t step = 0; step < probe.steps; ++step) {
      LS_TRY(const auto logits, interpreter_.Append(sequence, ids));
      const auto row = logits.row(0);
      trace.steps[step] = TraceTensor{{static_cast<int64_t>(row.size())},
                                      std::vector<float>(row.begin(), row.end())};
      ids = {static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin())};
      trace.greedy.push_back(ids[0]);
    }
    return trace;
  }

 private:
  const Model& model_;
  Interpreter<float> interpreter_;
};

Model Golden(const std::string& name) {
  auto model = LoadModel(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models" / name);
  EXPECT_TRUE(model) << name << ": " << model.error().message;
  return *std::move(model);
}

std::vector<Probe> ProbesOf(const ModelSpec& spec, const std::vector<size_t>& lengths,
                            int64_t steps) {
  std::vector<Probe> probes;
  const std::vector<int32_t> ids = BuiltInIds(spec.embedding.vocab_size).back().ids;
  for (const size_t length : lengths) {
    Probe probe{.name = fmt::format("{} ids", length)};
    for (size_t i = 0; i < length; ++i) probe.ids.push_back(ids[i % ids.size()]);
    probe.steps = steps;
    probes.push_back(std::move(probe));
  }
  return probes;
}

PowerReport PowerOf(const Model& model, const std::vector<size_t>& lengths, int64_t steps) {
  ThreadPool pool(1);
  Runs reference(model, pool);
  auto report = MeasurePower(model, reference, ProbesOf(model.spec, lengths, steps), pool, kGoOn);
  EXPECT_TRUE(report) << report.error().message;
  return *std::move(report);
}

const FaultPower& Of(const PowerReport& report, std::string_view id) {
  const auto found = std::ranges::find_if(
      report.faults, [&](const FaultPower& power) { return power.fault->id == id; });
  EXPECT_NE(found, report.faults.end()) << id;
  return *found;
}

int64_t NarrowestWindow(const ModelSpec& spec) {
  int64_t narrowest = 1 << 20;
  for (const LayerSpec& layer : spec.layers)
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer); a != nullptr && a->sliding_window)
      narrowest = std::min(narrowest, *a->sliding_window);
  return narrowest;
}

TEST(Power, EveryFaultOfTheCatalogueHasOneRowWithAReasonWhereItDoesNotShow) {
  for (const char* name : {"llama", "gemma3", "gpt2", "lfm2", "gpt-oss"}) {
    const Model model = Golden(name);
    const PowerReport report = PowerOf(model, {1, 5}, 3);
    ASSERT_EQ(report.faults.size(), KnownFaults().size()) << name;
    for (size_t i = 0; i < report.faults.size(); ++i) {
      const FaultPower& power = report.faults[i];
      EXPECT_EQ(power.fault, &KnownFaults()[i]) << name;
      EXPECT_EQ(power.forms, static_cast<int64_t>(power.fault->edits(model.spec).size()));
      EXPECT_EQ(power.state == PowerState::kDoesNotApply, power.forms == 0) << power.fault->id;
      EXPECT_EQ(power.state == PowerState::kShows, power.sentence.empty()) << power.fault->id;
      EXPECT_FALSE(power.fault->needs.empty()) << power.fault->id;
      if (power.forms_shown > 0) {
        EXPECT_GT(power.times_tolerance, 1) << name << ": " << power.fault->id;
        EXPECT_GE(power.step, 0);
      }
    }
    EXPECT_GT(report.Count(PowerState::kShows), 10) << name << ": " << report.sentence;
    EXPECT_GT(report.Count(PowerState::kDoesNotApply), 10) << name << ": " << report.sentence;
  }
}

TEST(Power, AWindowShowsOnlyOnAPromptPastIt) {
  const Model model = Golden("mistral-sliding");
  const auto window = static_cast<size_t>(NarrowestWindow(model.spec));
  ASSERT_GT(window, 2u);
  const PowerReport below = PowerOf(model, {1, window - 1}, 1);
  const FaultPower& dropped = Of(below, "window-dropped");
  EXPECT_EQ(dropped.state, PowerState::kNeedsMore) << dropped.sentence;
  EXPECT_EQ(dropped.forms_shown, 0);
  EXPECT_GT(dropped.needs_tokens, static_cast<int64_t>(window));
  EXPECT_NE(dropped.sentence.find(fmt::format("{} tokens", dropped.needs_tokens)),
            std::string::npos)
      << dropped.sentence;

  const PowerReport past = PowerOf(model, {1, window - 1, window + 2}, 1);
  EXPECT_EQ(Of(past, "window-dropped").state, PowerState::kShows);
  EXPECT_EQ(Of(past, "window-dropped").tokens, static_cast<int64_t>(window) + 2);
  EXPECT_EQ(Of(past, "window-off-by-one").state, PowerState::kShows);

  // A window that is one narrower shows at its length, one that is wider does not.
  const PowerReport at = PowerOf(model, {window}, 1);
  const FaultPower& one = Of(at, "window-off-by-one");
  EXPECT_EQ(one.state, PowerState::kSomeFormsShow) << one.sentence;
  EXPECT_EQ(one.forms_shown, 1);
}

// A window that nobody named could have any size: that one of 16 shows says nothing of 4096.
TEST(Power, AWindowThatHadToBeInventedIsSaidToBe) {
  const PowerReport report = PowerOf(Golden("llama"), {24}, 3);
  const FaultPower& power = Of(report, "window-where-none");
  EXPECT_EQ(power.state, PowerState::kSomeFormsShow);
  EXPECT_GT(power.times_tolerance, 1);
  EXPECT_NE(power.sentence.find("invented"), std::string::npos) << power.sentence;
  EXPECT_NE(power.sentence.find("one of 26 or more"), std::string::npos) << power.sentence;
  // The model's own window is none of ours.
  EXPECT_EQ(Of(PowerOf(Golden("gemma3"), {24}, 3), "window-where-none").state, PowerState::kShows);
}

TEST(Power, WhatShowsInDecodingAloneNeedsASecondStep) {
  const Model model = Golden("llama");
  const FaultPower one = Of(PowerOf(model, {9}, 1), "cache-lost");
  EXPECT_EQ(one.state, PowerState::kNeedsMore) << one.sentence;
  EXPECT_EQ(one.needs_tokens, 0);
  const FaultPower two = Of(PowerOf(model, {9}, 2), "cache-lost");
  EXPECT_EQ(two.state, PowerState::kShows) << two.sentence;
  EXPECT_EQ(two.step, 1);
}

TEST(Power, AFaultWhoseFactIsAbsentSaysWhichFact) {
  const PowerReport report = PowerOf(Golden("llama"), {3}, 1);
  const FaultPower& scaling = Of(report, "rope-scaling-missing");
  EXPECT_EQ(scaling.state, PowerState::kDoesNotApply);
  EXPECT_NE(scaling.sentence.find("scaled RoPE"), std::string::npos) << scaling.sentence;
}

// What is said to show is what a verification of such a candidate says, and the reverse.
TEST(Power, AgreesWithAVerificationOfTheFaultyModel) {
  ThreadPool pool(1);
  for (const char* name : {"gemma3", "gpt2", "mistral-sliding"}) {
    const Model model = Golden(name);
    const std::vector<Probe> probes = ProbesOf(model.spec, {4}, 6);
    const PowerReport report = PowerOf(model, {4}, 6);
    Runs reference(model, pool);
    auto right = reference.Run(probes.front(), kGoOn);
    ASSERT_TRUE(right);
    Interpreter<double> exact(model.spec, model.weights, pool);
    Sequence<double> sequence = exact.NewSequence();
    right->noise = 0;
    for (int64_t step = 0; step < 6; ++step) {
      const std::vector<int32_t> ids =
          step == 0 ? right->ids : std::vector{right->greedy[static_cast<size_t>(step - 1)]};
      const auto logits = exact.Append(sequence, ids);
      ASSERT_TRUE(logits);
      const auto row = logits->row(0);
      right->noise = std::max(
          *right->noise,
          MaxAbsDifference(right->StepLogits(step), std::vector<double>(row.begin(), row.end())));
    }
    for (const FaultPower& power : report.faults) {
      int64_t differ = 0;
      for (const Edit& edit : power.fault->edits(model.spec)) {
        const auto edited = Edited(model, edit);
        const auto run = EditedRun({}, edit);
        ASSERT_TRUE(edited && run) << name << ": " << power.fault->id;
        Runs candidate(*edited, pool, *run);
        const auto wrong = candidate.Run(probes.front(), kGoOn);
        differ += wrong && CompareRuns(*right, *wrong, 6).verdict == Verdict::kDiffers;
      }
      EXPECT_EQ(power.forms_shown, differ) << name << ": " << power.fault->id;
    }
  }
}

TEST(Power, CtrlCEndsIt) {
  const Model model = Golden("llama");
  ThreadPool pool(1);
  Runs reference(model, pool);
  const auto report = MeasurePower(model, reference, ProbesOf(model.spec, {3}, 2), pool,
                                   [](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_FALSE(report);
  EXPECT_TRUE(IsInterrupted(report.error()));
}

}  // namespace
}  // namespace lockstep

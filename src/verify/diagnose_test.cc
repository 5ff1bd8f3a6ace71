#include "verify/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "model/apply_edit.h"
#include "reference/interpreter.h"
#include "trace/trace.h"
#include "verify/bisect.h"
#include "verify/catalogue_edits.h"
#include "verify/systematic_edits.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const Progress kGoOn = [](std::string_view, int64_t, int64_t) { return true; };

fs::path Golden(const std::string& name) {
  return fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models" / name;
}

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Golden(""))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What a candidate that computes as the edited model would give: the golden's prompts, greedily.
std::vector<PromptTrace> CandidateWith(const Model& model, const std::string& name,
                                       const Edit& edit, int64_t steps, ThreadPool& pool) {
  std::vector<PromptTrace> out;
  const auto edited = Edited(model, edit);
  EXPECT_TRUE(edited) << name << ": " << edited.error().message;
  const auto run = EditedRun({}, edit);
  EXPECT_TRUE(run) << run.error().message;
  const auto golden = ReadTrace(Golden(name) / "golden.safetensors");
  EXPECT_TRUE(golden) << golden.error().message;
  if (!edited || !run || !golden) return out;
  Interpreter<float> interpreter(edited->spec, edited->weights, pool, *run);
  for (const PromptTrace& prompt : golden->prompts) {
    PromptTrace trace{.name = prompt.name, .ids = prompt.ids};
    Sequence<float> sequence = interpreter.NewSequence();
    std::vector<int32_t> ids = prompt.ids;
    for (int64_t step = 0; step < steps; ++step) {
      const auto limit = ContextLimit(model.spec);
      if (limit && sequence.length + static_cast<int64_t>(ids.size()) > *limit) break;
      const auto logits = interpreter.Append(sequence, ids);
      if (!logits) break;
      const auto row = logits->row(0);
      trace.steps[step] = TraceTensor{{static_cast<int64_t>(row.size())},
                                      std::vector<float>(row.begin(), row.end())};
      ids = {static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin())};
      trace.greedy.push_back(ids[0]);
    }
    if (!trace.steps.empty()) out.push_back(std::move(trace));
  }
  return out;
}

Edit Parsed(std::string_view text) {
  const auto edit = ParseEdit(text);
  EXPECT_TRUE(edit) << edit.error().message;
  return edit ? *edit : Edit{};
}

Result<Diagnosis> DiagnoseEdit(const std::string& name, const Edit& edit, int64_t steps = 8,
                               const DiagnoseOptions& options = {}) {
  ThreadPool pool(2);
  LS_TRY(const Model model, LoadModel(Golden(name)));
  return Diagnose(model, CandidateWith(model, name, edit, steps, pool), options, pool, kGoOn);
}

std::string Told(const Diagnosis& d) { return ToJson(d).dump(1); }

TEST(Diagnose, TheModelItselfIsAMatch) {
  int models = 0;
  for (const std::string& name : GoldenNames()) {
    const auto d = DiagnoseEdit(name, {}, 4);
    ASSERT_TRUE(d) << name << ": " << d.error().message;
    EXPECT_EQ(d->verdict, DiagnosisVerdict::kMatch) << name << Told(*d);
    EXPECT_TRUE(d->causes.empty());
    ++models;
  }
  EXPECT_GT(models, 30);
}

// transformers' own numbers are no fault either.
TEST(Diagnose, WhatTransformersRecordedIsAMatch) {
  ThreadPool pool(2);
  for (const std::string name : {"gemma3-rope-scaled", "llama", "gpt-oss", "lfm2"}) {
    const auto model = LoadModel(Golden(name));
    const auto golden = ReadTrace(Golden(name) / "golden.safetensors");
    ASSERT_TRUE(model && golden);
    const auto d = Diagnose(*model, golden->prompts, {}, pool, kGoOn);
    ASSERT_TRUE(d) << d.error().message;
    EXPECT_EQ(d->verdict, DiagnosisVerdict::kMatch) << name << Told(*d);
  }
}

struct Injected {
  const char* model;
  const char* edit;
};

// One cause, or something else that gives the very same numbers.
TEST(Diagnose, NamesASingleEditOrATruePartner) {
  const Injected kInjected[] = {
      {"gemma2", "embedding.scale.rounding = \"two_decimals\""},
      {"gemma3", "layers[*].mixer.query_scale.value = 0.2886751345948129"},  // 1 / √head_dim
      {"llama", "layers[*].mixer.rope.theta = 500000"},
      {"llama", "layers[*].mlp.activation = \"gelu_tanh\""},
      {"llama", "layers[*].mixer.rope.layout = \"interleaved\""},
      {"llama-bias-headdim", "layers[*].mlp.up_bias = false; layers[*].mlp.down_bias = false"},
      {"mistral-sliding", "layers[*].mixer.sliding_window = null"},
      {"qwen2-sliding", "layers[*].mixer.sliding_window = null"},
      {"qwen3", "layers[*].mixer.q_norm.eps = 0.001"},
      {"qwen2", "layers[1].mixer.k_bias = false"},
      {"nemotron", "layers[*].mixer_pre_norm.weight_rounding = \"bf16\""},
      {"mixtral", "layers[*].mlp.num_experts_per_tok = 1"},
      {"granite", "layers[*].residual.value = 1"},
      {"llama", "weights: zero layers[1].v_proj.weight"},
      {"llama", "weights: swap layers[*].gate_proj.weight with up_proj"},
  };
  for (const Injected& injected : kInjected) {
    const auto d = DiagnoseEdit(injected.model, Parsed(injected.edit));
    ASSERT_TRUE(d) << d.error().message;
    EXPECT_EQ(d->verdict, DiagnosisVerdict::kExplained)
        << injected.model << ": " << injected.edit << Told(*d);
    EXPECT_EQ(d->causes.size(), 1u) << injected.model << ": " << injected.edit << Told(*d);
    EXPECT_LE(d->after.times_tolerance, 1) << injected.edit;
  }
}

// Numbers that are in no list.
TEST(Diagnose, FitsANumberThatNobodyWouldGuess) {
  for (const char* edit :
       {"layers[1].mixer.query_scale.value = 0.2137", "layers[*].mixer.rope.theta = 77777"}) {
    const auto d = DiagnoseEdit("llama", Parsed(edit));
    ASSERT_TRUE(d) << d.error().message;
    ASSERT_EQ(d->verdict, DiagnosisVerdict::kExplained) << edit << Told(*d);
    EXPECT_EQ(d->causes.size(), 1u) << Told(*d);
  }
}

// onnxruntime-genai's export of a scaled Gemma-3: three things at once.
TEST(Diagnose, NamesThreeCausesAtOnce) {
  const Edit edit = Parsed(
      "layers[0,1,3].mixer.rope.scaling = {\"kind\": \"linear\", \"factor\": 8};"
      "embedding.scale.rounding = \"two_decimals\";"
      "layers[*].mixer_pre_norm.weight_rounding = \"bf16\";"
      "layers[*].mixer_post_norm.weight_rounding = \"bf16\";"
      "layers[*].mlp_pre_norm.weight_rounding = \"bf16\";"
      "layers[*].mlp_post_norm.weight_rounding = \"bf16\";"
      "layers[*].mixer.q_norm.weight_rounding = \"bf16\";"
      "layers[*].mixer.k_norm.weight_rounding = \"bf16\";"
      "final_norm.weight_rounding = \"bf16\"");
  const auto d = DiagnoseEdit("gemma3-rope-scaled", edit, 20);
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->verdict, DiagnosisVerdict::kExplained) << Told(*d);
  EXPECT_EQ(d->causes.size(), 3u) << Told(*d);
  EXPECT_LE(d->after.times_tolerance, 1);
  for (size_t i = 1; i < d->causes.size(); ++i)
    EXPECT_LT(d->causes[i].after.rms, d->causes[i - 1].after.rms) << Told(*d);
  std::string changed;
  for (const Cause& cause : d->causes)
    for (const FieldDifference& change : cause.changes) changed += change.path + "\n";
  for (const char* path : {"layers[0,1,3].mixer.rope.scaling\n", "layers[0-3].mixer_pre_norm",
                           "layers[0-3].mixer.q_norm", "final_norm", "embedding.scale"})
    EXPECT_NE(changed.find(path), std::string::npos) << path << Told(*d);
}

// Three faults, the first at the embedding, and no time to search: what a static look at the
// candidate saw is tried together before anything else.
TEST(Diagnose, WhatWasSeenIsTriedTogetherFirst) {
  ThreadPool pool(2);
  const auto model = LoadModel(Golden("gemma3-rope-scaled"));
  ASSERT_TRUE(model);
  DiagnoseOptions options{.seconds = 0};
  Edit all;
  for (const char* text :
       {"embedding.scale.rounding = \"two_decimals\"",
        "layers[*].mixer.q_norm.weight_rounding = \"bf16\"",
        "layers[0,1,3].mixer.rope.scaling = {\"kind\": \"linear\", \"factor\": 8}"}) {
    const Edit edit = Parsed(text);
    all.spec.insert(all.spec.end(), edit.spec.begin(), edit.spec.end());
    options.audit.push_back(
        {.edit = edit, .origin = Origin::kAudit, .id = {}, .sentence = "seen in the graph"});
  }
  const auto candidate = CandidateWith(*model, "gemma3-rope-scaled", all, 8, pool);
  const auto d = Diagnose(*model, candidate, options, pool, kGoOn);
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->verdict, DiagnosisVerdict::kExplained) << Told(*d);
  ASSERT_EQ(d->causes.size(), 3u) << Told(*d);
  for (size_t i = 1; i < d->causes.size(); ++i)
    EXPECT_LT(d->causes[i].after.rms, d->causes[i - 1].after.rms) << Told(*d);
}

// No edit of the reference halves one logit: that is said, with what comes nearest.
TEST(Diagnose, WhatNoEditExplainsIsUnexplained) {
  ThreadPool pool(2);
  const auto model = LoadModel(Golden("llama"));
  ASSERT_TRUE(model);
  std::vector<PromptTrace> candidate = CandidateWith(*model, "llama", {}, 8, pool);
  for (PromptTrace& trace : candidate)
    for (auto& [step, row] : trace.steps)
      std::get<std::vector<float>>(row.values)[static_cast<size_t>(step) + 3] *= 0.5f;
  const auto d = Diagnose(*model, candidate, {.max_edits = 2}, pool, kGoOn);
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(d->verdict, DiagnosisVerdict::kUnexplained) << Told(*d);
  EXPECT_TRUE(d->causes.empty());
  // What is listed has brought the two nearer, step by step.
  Distance before = d->before;
  for (const Cause& cause : d->nearest) {
    EXPECT_LT(cause.after.rms, before.rms);
    EXPECT_LE(cause.after.max_abs, before.max_abs);
    before = cause.after;
  }
}

TEST(Diagnose, AHintOfAnAuditComesFirst) {
  const Edit edit = Parsed("layers[2].mixer.query_scale.value = 0.123");
  const auto d =
      DiagnoseEdit("llama", edit, 8, {.audit = {{edit, Origin::kAudit, "", "seen in the graph"}}});
  ASSERT_TRUE(d) << d.error().message;
  ASSERT_EQ(d->verdict, DiagnosisVerdict::kExplained) << Told(*d);
  EXPECT_EQ(d->causes.front().hypothesis.origin, Origin::kAudit);
  EXPECT_EQ(d->causes.front().hypothesis.sentence, "seen in the graph");
}

TEST(Diagnose, LogitsThatAreNoNumbersAreAnError) {
  ThreadPool pool(1);
  const auto model = LoadModel(Golden("llama"));
  ASSERT_TRUE(model);
  std::vector<PromptTrace> candidate = CandidateWith(*model, "llama", {}, 2, pool);
  std::get<std::vector<float>>(candidate[0].steps.at(1).values)[5] =
      std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Diagnose(*model, candidate, {}, pool, kGoOn));
  candidate[0].steps.at(1) = TraceTensor{{3}, std::vector<float>{1, 2, 3}};
  EXPECT_FALSE(Diagnose(*model, candidate, {}, pool, kGoOn));
  EXPECT_FALSE(Diagnose(*model, {}, {}, pool, kGoOn));
}

TEST(Diagnose, StopsWhenAsked) {
  ThreadPool pool(1);
  const auto model = LoadModel(Golden("llama"));
  const auto candidate =
      CandidateWith(*model, "llama", Parsed("layers[*].mixer.rope.theta = 77"), 2, pool);
  const auto d = Diagnose(*model, candidate, {}, pool,
                          [](std::string_view, int64_t, int64_t) { return false; });
  ASSERT_FALSE(d);
  EXPECT_TRUE(IsInterrupted(d.error()));
}

// Every known fault that shows on the golden's prompts is found and named, or nothing tells it
// apart from what is named.
class NamesEveryKnownFault : public testing::TestWithParam<std::string> {};
TEST_P(NamesEveryKnownFault, ThatShows) {
  ThreadPool pool(2);
  const auto model = LoadModel(Golden(GetParam()));
  ASSERT_TRUE(model) << model.error().message;
  int shown = 0, named = 0;
  std::string missed;
  std::set<std::string> tried;
  for (const Hypothesis& fault : CatalogueEdits(model->spec)) {
    if (!tried.insert(fault.id).second) continue;  // its first form
    const auto d = Diagnose(*model, CandidateWith(*model, GetParam(), fault.edit, 4, pool),
                            {.systematic = false, .max_edits = 1}, pool, kGoOn);
    // A fault may give what is no number; that is a verdict of its own.
    if (!d || d->verdict == DiagnosisVerdict::kMatch) continue;
    ++shown;
    const auto is_it = [&](const Hypothesis& h) { return h.id == fault.id; };
    const bool found =
        d->verdict == DiagnosisVerdict::kExplained && d->causes.size() == 1 &&
        (is_it(d->causes[0].hypothesis) ||
         std::any_of(d->indistinguishable.begin(), d->indistinguishable.end(),
                     [&](const Alternative& other) { return is_it(other.hypothesis); }));
    named += found;
    if (!found) missed += fmt::format("{}: {}\n", fault.id, d->sentence);
  }
  EXPECT_GT(shown, 10);
  EXPECT_GE(named, shown * 95 / 100) << missed;
  RecordProperty("shown", shown);
  RecordProperty("named", named);
}
INSTANTIATE_TEST_SUITE_P(Golden, NamesEveryKnownFault, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(FirstDifferentTap, IsTheLayerThatTheEditTouches) {
  ThreadPool pool(1);
  const auto model = LoadModel(Golden("llama"));
  const auto edited = Edited(*model, Parsed("layers[2].mlp.activation = \"relu\""));
  const auto golden = ReadTrace(Golden("llama") / "golden.safetensors");
  ASSERT_TRUE(model && edited && golden && golden->prompts.front().hidden);
  const auto same = FirstDifferentTap(*model, golden->prompts, pool);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(*same, std::nullopt);
  // The recording held against the edited model.
  const auto differs = FirstDifferentTap(*edited, golden->prompts, pool);
  ASSERT_TRUE(differs && *differs);
  if (model->spec.layers.size() > 3)
    EXPECT_EQ(TapName((*differs)->tap, (*differs)->layer), "layers.2.output");
  else
    EXPECT_EQ((*differs)->tap, Tap::kFinalNorm);
}

TEST(SystematicEdits, EveryOneAppliesAndNoTwoAreTheSame) {
  for (const std::string& name : GoldenNames()) {
    const auto model = LoadModel(Golden(name));
    ASSERT_TRUE(model) << model.error().message;
    const std::vector<Hypothesis> edits = SystematicEdits(model->spec);
    EXPECT_GT(edits.size(), 60u) << name;
    std::set<std::string> seen;
    for (const Hypothesis& h : edits) {
      EXPECT_FALSE(h.sentence.empty());
      EXPECT_TRUE(Edited(*model, h.edit)) << name << ": " << ToString(h.edit);
      EXPECT_TRUE(seen.insert(ToString(h.edit)).second) << name << ": " << ToString(h.edit);
    }
  }
}

}  // namespace
}  // namespace lockstep

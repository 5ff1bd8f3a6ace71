#include "audit/audit.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "audit/audit_testing.h"
#include "audit/candidate_weights.h"
#include "audit/repair.h"
#include "base/json.h"
#include "model/apply_edit.h"
#include "reference/rope.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Two builders' exports of one checkpoint (bf16 weights, a window on the even layers).
class Builders : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Gemma2, Builders, testing::Values("genai", "mobius"));

TEST_P(Builders, EveryWeightIsLocated) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / GetParam());
  for (const WeightSlot& slot : RequiredWeights(pair.reference.spec))
    EXPECT_TRUE(pair.report.weights.contains(slot.id)) << ToString(slot.id);
  EXPECT_EQ(CountOf(pair.report, WeightState::kNotFound), 0);
  EXPECT_EQ(CountOf(pair.report, WeightState::kMissing), 0);
}

TEST_P(Builders, TheScaleRoundedToTwoDecimalsIsFound) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / GetParam());
  const auto found = std::find_if(pair.report.findings.begin(), pair.report.findings.end(),
                                  [](const Finding& f) { return f.where == "embedding.scale"; });
  ASSERT_NE(found, pair.report.findings.end()) << All(pair.report);
  EXPECT_EQ(found->kind, FindingKind::kScale);
  EXPECT_EQ(ToString(found->edit.value_or(Edit{})), "embedding.scale.rounding=\"two_decimals\"");
}

// The edit of each finding is what the candidate is: with all of them nothing is left to find.
TEST_P(Builders, TheEditedReferenceEqualsTheCandidate) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / GetParam());
  ASSERT_FALSE(pair.report.healthy());
  Edit all;
  for (const Finding& finding : pair.report.findings) {
    ASSERT_TRUE(finding.edit) << finding.sentence;
    all = Joined(all, *finding.edit);
  }
  const Model edited = Must(Edited(pair.reference, all));
  const AuditReport report = Must(Audit(edited, pair.candidate));
  EXPECT_TRUE(report.findings.empty()) << All(report);
}

TEST_P(Builders, TheRepairedFolderHasNoFinding) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / GetParam());
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  EXPECT_TRUE(plan.left.empty());
  EXPECT_EQ(plan.changes.size(), pair.report.findings.size());
  const TestFolder scratch;
  const Status written = WriteRepair(pair.candidate, plan, scratch / "new");
  ASSERT_TRUE(written) << written.error().message;
  const Pair mended = Look(kGemma / "checkpoint", scratch / "new");
  EXPECT_TRUE(mended.report.findings.empty()) << All(mended.report);
}

TEST(Audit, NormsAddedInBf16AreFoundInEveryLayer) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / "genai");
  const auto found = std::find_if(pair.report.findings.begin(), pair.report.findings.end(),
                                  [](const Finding& f) { return f.kind == FindingKind::kWeight; });
  ASSERT_NE(found, pair.report.findings.end());
  EXPECT_EQ(found->where,
            "layers[0,1].mixer_pre_norm, layers[0,1].mixer_post_norm, layers[0,1].mlp_pre_norm, "
            "layers[0,1].mlp_post_norm, final_norm");
  EXPECT_EQ(CountOf(pair.report, WeightState::kRounded), 9);
}

TEST(Audit, AShiftedScheduleIsOneFinding) {
  const Pair pair = Look(kGemma / "checkpoint", kGemma / "mobius");
  const auto found =
      std::find_if(pair.report.findings.begin(), pair.report.findings.end(),
                   [](const Finding& f) { return f.kind == FindingKind::kAttention; });
  ASSERT_NE(found, pair.report.findings.end());
  EXPECT_EQ(ToString(*found->edit),
            "layers[0].mixer.sliding_window=null; layers[1].mixer.sliding_window=8");
}

// A fault put into a healthy copy of the export is found, and mended.
struct Injection {
  const char* name;
  void (*inject)(const OnnxModel& model, OnnxPatch& patch);
  const char* sentence;  // a part of the one that tells it
};

const Injection kInjections[] = {
    {"attention_scale",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.attributes.push_back({NodeOf(m, "GroupQueryAttention"), "scale", 0.25f});
     },
     "layers[0].mixer.query_scale: another scale of attention"},
    {"soft_cap_missing",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.attributes.push_back({NodeOf(m, "GroupQueryAttention", 1), "softcap", 0.0f});
     },
     "layers[1].mixer.logit_softcap: another soft cap"},
    {"window_off_by_one",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.attributes.push_back({NodeOf(m, "GroupQueryAttention"), "local_window_size", int64_t{9}});
     },
     "layers[0].mixer.sliding_window: a window of another size; expected 8, found 9"},
    {"no_rotation",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.attributes.push_back({NodeOf(m, "GroupQueryAttention"), "do_rotary", int64_t{0}});
     },
     "layers[0].mixer.rope: queries and keys are not rotated"},
    {"epsilon",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.attributes.push_back({NodeOf(m, "SimplifiedLayerNormalization"), "epsilon", 1e-5f});
     },
     "another epsilon of the norm; expected 1e-06, found 1e-05"},
    {"erf_for_tanh",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.attributes.push_back({NodeOf(m, "Gelu"), "approximate", std::string("none")});
     },
     "layers[0].mlp.activation: another activation; expected gelu_tanh, found gelu"},
    {"zeroed", [](const OnnxModel& m, OnnxPatch& p) { Multiply(m, NodeOf(m, "MatMul", 3), 0, p); },
     "layers[0].up_proj.weight: all zeros"},
    {"scaled",
     [](const OnnxModel& m, OnnxPatch& p) { Multiply(m, NodeOf(m, "MatMul", 1), 1.5, p); },
     "layers[0].o_proj.weight: scaled by 1.5"},
    {"gate_and_up_swapped",
     [](const OnnxModel& m, OnnxPatch& p) {
       const size_t gate = NodeOf(m, "MatMul", 2), up = NodeOf(m, "MatMul", 3);
       p.inputs.push_back({gate, 1, m.nodes()[up].inputs[1]});
       p.inputs.push_back({up, 1, m.nodes()[gate].inputs[1]});
     },
     "layers[0].gate_proj.weight: exchanged with up_proj"},
    {"another_layers",
     [](const OnnxModel& m, OnnxPatch& p) {
       p.inputs.push_back(
           {NodeOf(m, "MatMul", 1), 1, std::string(m.nodes()[NodeOf(m, "MatMul", 6)].Input(1))});
     },
     "layers[0].o_proj.weight: holds layers.1.o_proj.weight"},
    {"linear_factor",
     [](const OnnxModel& m, OnnxPatch& p) {
       for (const size_t slot : {size_t{7}, size_t{8}}) {
         const OnnxTensor& t = *m.Tensor(m.nodes()[NodeOf(m, "GroupQueryAttention")].Input(slot));
         std::vector<double> table;
         for (int64_t row = 0; row < t.dims[0]; ++row)
           for (int64_t i = 0; i < t.dims[1]; ++i) {
             const double angle =
                 static_cast<double>(row) / 4 *
                 std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(t.dims[1]));
             table.push_back(slot == 7 ? std::cos(angle) : std::sin(angle));
           }
         p.tensors.push_back({.name = t.name, .bytes = *EncodeNumbers(table, t.type)});
       }
     },
     "layers[0,1].mixer.rope: another scaling; expected theta 10000, no scaling, found theta "
     "10000, linear factor 4"},
    {"rows_rolled",
     [](const OnnxModel& m, OnnxPatch& p) {
       for (const size_t slot : {size_t{7}, size_t{8}}) {
         const OnnxTensor& t = *m.Tensor(m.nodes()[NodeOf(m, "GroupQueryAttention")].Input(slot));
         std::vector<double> table = *ReadDoubles(t);
         std::rotate(table.begin(), table.begin() + t.dims[1], table.end());
         p.tensors.push_back({.name = t.name, .bytes = *EncodeNumbers(table, t.type)});
       }
     },
     "layers[0,1].mixer.rope: the tables of cosines and sines are shifted by a position: each row "
     "is that of the next position; expected row p for position p, found row p for position p + "
     "1"},
    {"rows_begin_late",
     [](const OnnxModel& m, OnnxPatch& p) {
       for (const size_t slot : {size_t{7}, size_t{8}}) {
         const OnnxTensor& t = *m.Tensor(m.nodes()[NodeOf(m, "GroupQueryAttention")].Input(slot));
         std::vector<double> table = *ReadDoubles(t);
         std::rotate(table.begin(), table.end() - 2 * t.dims[1], table.end());
         p.tensors.push_back({.name = t.name, .bytes = *EncodeNumbers(table, t.type)});
       }
     },
     "shifted by 2 positions: each row is that of the position 2 before"},
};

class Injected : public testing::TestWithParam<Injection> {};
INSTANTIATE_TEST_SUITE_P(Faults, Injected, testing::ValuesIn(kInjections),
                         [](const auto& info) { return info.param.name; });

TEST_P(Injected, IsFoundAndMended) {
  const Pair original = Look(kGemma / "checkpoint", kGemma / "genai");
  const TestFolder scratch;
  const RepairPlan healing = Must(PlanRepair(original.candidate, original.report));
  ASSERT_TRUE(WriteRepair(original.candidate, healing, scratch / "healthy"));
  const OnnxModel healthy = Must(OnnxModel::Open(scratch / "healthy"));
  OnnxPatch patch;
  GetParam().inject(healthy, patch);
  const Status made = WriteOnnx(healthy, patch, scratch / "faulty");
  ASSERT_TRUE(made) << made.error().message;

  const Pair faulty = Look(kGemma / "checkpoint", scratch / "faulty");
  EXPECT_NE(All(faulty.report).find(GetParam().sentence), std::string::npos) << All(faulty.report);
  const RepairPlan plan = Must(PlanRepair(faulty.candidate, faulty.report));
  EXPECT_TRUE(plan.left.empty());
  const Status written = WriteRepair(faulty.candidate, plan, scratch / "mended");
  ASSERT_TRUE(written) << written.error().message;
  const Pair mended = Look(kGemma / "checkpoint", scratch / "mended");
  EXPECT_TRUE(mended.report.findings.empty()) << All(mended.report);
}

TEST(Repair, InPlaceLeavesOneFolder) {
  const TestFolder scratch;
  fs::copy(kGemma / "mobius", scratch / "model");
  const Pair pair = Look(kGemma / "checkpoint", scratch / "model");
  const Status done = RepairInPlace(pair.candidate, Must(PlanRepair(pair.candidate, pair.report)));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(Look(kGemma / "checkpoint", scratch / "model").report.healthy());
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "model"), fs::directory_iterator{}), 2);
}

TEST(Repair, InPlaceRemovesWhatAKilledOneLeft) {
  const TestFolder scratch;
  fs::copy(kGemma / "mobius", scratch / "model");
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  fs::create_directories(scratch / "model" / fmt::format(".repaired.lockstep-{}-abcdef", pid));
  const Pair pair = Look(kGemma / "checkpoint", scratch / "model");
  ASSERT_TRUE(RepairInPlace(pair.candidate, Must(PlanRepair(pair.candidate, pair.report))));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch / "model"), fs::directory_iterator{}), 2);
}

TEST(Audit, AGraphWithoutAttentionIsRefusedInASentence) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  const OnnxModel other =
      Must(OnnxModel::Open(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/onnx/reader"));
  const auto report = Audit(reference, other);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("no attention operator"), std::string::npos);
}

TEST(Audit, ACheckpointEqualsItself) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  EXPECT_TRUE(Must(Audit(reference, reference)).findings.empty());
}

TEST(Audit, AnEditedCheckpointDiffersByItsEdit) {
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  const Edit edit =
      *ParseEdit("layers[0].mixer.sliding_window = null; weights: zero layers[1].up_proj.weight");
  const AuditReport report = Must(Audit(reference, Must(Edited(reference, edit))));
  EXPECT_EQ(Wheres(report), (std::vector<std::string>{"layers[1].up_proj.weight",
                                                      "layers[0].mixer.sliding_window"}));
}

TEST(Audit, AWeightOfACheckpointThatIsNoNumberIsToldAsThat) {
  const TestFolder scratch;
  fs::copy(kGemma / "checkpoint", scratch / "nan");
  const fs::path file = scratch / "nan" / "model.safetensors";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto json = Json::parse(bytes.substr(8, header));
  const auto range = json["model.layers.1.mlp.up_proj.weight"]["data_offsets"];
  for (uint64_t i = range[0]; i < range[1].get<uint64_t>(); ++i)
    bytes[8 + header + i] = '\xff';  // NaN in every float type
  std::ofstream(file, std::ios::binary) << bytes;
  const Model reference = Must(LoadModel(kGemma / "checkpoint"));
  const AuditReport report = Must(Audit(reference, Must(LoadModel(scratch / "nan"))));
  ASSERT_EQ(report.findings.size(), 1u) << All(report);
  EXPECT_EQ(report.findings[0].where, "layers[1].up_proj.weight");
  EXPECT_NE(All(report).find("that are NaN or infinite"), std::string::npos) << All(report);
  EXPECT_EQ(All(report).find("zero"), std::string::npos) << All(report);
}

// A GGUF file states llama3's bands as a factor for each frequency, and numbers as fp32.
TEST(Audit, TheSameFactsInOtherWordsAreNoFinding) {
  const fs::path models = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models";
  const Model reference = Must(LoadModel(models / "llama-rope-llama3"));
  Model candidate = Must(LoadModel(models / "llama-rope-llama3"));
  const RopeSpec rope = *FindRope(reference.spec.layers[0]);
  RopeSpec plain = rope;
  plain.scaling.reset();
  // cos and sin of position 1 tell the frequencies.
  const RopeTable scaled(rope, 1, 1, 64), unscaled(plain, 1, 1, 64);
  FrequencyFactors factors;
  for (int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
    const auto at = static_cast<size_t>(i);
    factors.factors.push_back(std::atan2(unscaled.sin[at], unscaled.cos[at]) /
                              std::atan2(scaled.sin[at], scaled.cos[at]));
  }
  plain.scaling = factors;
  for (LayerSpec& layer : candidate.spec.layers) {
    std::get<AttentionSpec>(layer.mixer).rope = plain;
    layer.mixer_pre_norm->eps = static_cast<float>(layer.mixer_pre_norm->eps);
  }
  candidate.spec.max_position_embeddings += 1;
  EXPECT_EQ(All(Must(Audit(reference, candidate))), "");

  std::get<AttentionSpec>(candidate.spec.layers[1].mixer).rope->theta *= 2;
  EXPECT_FALSE(Must(Audit(reference, candidate)).healthy());
}

// What real builders wrote, when it is there: folder, and where something is found.
struct Export {
  const char* folder;
  std::set<std::string> wheres;
};
const Export kExports[] = {
    {"genai-0.18/gemma2", {"embedding.scale"}},
    {"genai-0.18/gemma3-rope-scaled",
     {"layers[0-5].mixer_pre_norm, layers[0-5].mixer.q_norm, layers[0-5].mixer.k_norm, "
      "layers[0-5].mixer_post_norm, layers[0-5].mlp_pre_norm, layers[0-5].mlp_post_norm",
      "layers[0,1,3,4].mixer.rope", "embedding.scale"}},
    {"genai-0.18/granite", {}},
    {"genai-0.18/lfm2-moe", {}},
    {"genai-0.18/lfm2-moe@int4", {}},
    {"genai-0.18/llama", {}},
    {"genai-0.18/llama@int4", {}},
    {"genai-0.18/mistral-sliding",
     {"layers[0-3].mixer.sliding_window", "genai_config.json/model/decoder/sliding_window"}},
    {"genai-0.18/nemotron",
     {"layers[0-3].mixer_pre_norm, layers[0-3].mlp_pre_norm, final_norm",
      "layers[0-3].mixer_pre_norm.eps, layers[0-3].mlp_pre_norm.eps, final_norm.eps"}},
    {"genai-0.18/qwen2", {"genai_config.json/search/repetition_penalty"}},
    {"genai-0.18/qwen3", {}},
    {"genai-0.18/qwen3@int8", {}},
    {"mobius-0.1/gemma2",
     {"layers[0,2].mixer.sliding_window, layers[1,3].mixer.sliding_window", "embedding.scale"}},
    {"mobius-0.1/gpt2", {}},
    {"mobius-0.1/llama-bias-headdim",
     {"layers[0-3].gate_proj.bias, layers[0-3].up_proj.bias, layers[0-3].down_proj.bias"}},
    {"mobius-0.1/mixtral", {}},
    {"mobius-0.1/phi3", {}},
    {"mobius-0.1/qwen2-sliding", {"layers[2,3].mixer.sliding_window"}},
    {"mobius-0.1/smollm3", {}},
};

TEST(Exports, WhatIsWrongIsFoundAndNothingElse) {
  const fs::path goldens = LOCKSTEP_GOLDENS;
  const fs::path exports = goldens / "../exports";
  std::error_code error;
  if (goldens.empty() || !fs::is_directory(exports, error))
    GTEST_SKIP() << "the exports are not there; the repository's own are tested above";
  for (const Export& one : kExports) {
    SCOPED_TRACE(one.folder);
    std::string name = fs::path(one.folder).filename().string();
    const bool quantized = name.find('@') != std::string::npos;
    name = name.substr(0, name.find('@'));
    const Pair pair = Look(goldens / "models" / name, exports / one.folder);
    std::set<std::string> wheres;
    for (const Finding& finding : pair.report.findings)
      if (finding.kind != FindingKind::kQuantized) wheres.insert(finding.where);
    EXPECT_EQ(wheres, one.wheres) << All(pair.report);
    EXPECT_EQ(CountOf(pair.report, WeightState::kQuantized) > 0, quantized);
    EXPECT_EQ(CountOf(pair.report, WeightState::kNotFound), 0);
    if (quantized) {
      const CandidateWeights own = Must(WithWeightsOf(pair.reference, pair.candidate, pair.report));
      EXPECT_FALSE(own.rounds.empty());
      EXPECT_GE(own.replaced, CountOf(pair.report, WeightState::kQuantized));
    }
    const TestFolder scratch;
    const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
    EXPECT_TRUE(plan.left.empty());
    if (plan.empty()) continue;
    const Status written = WriteRepair(pair.candidate, plan, scratch / "new");
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_TRUE(Look(goldens / "models" / name, scratch / "new").report.healthy());
  }
}

// The tables of short and of long contexts lie in one tensor, one behind the other.
TEST(Exports, BothTablesOfALongRopeAreMended) {
  const fs::path goldens = LOCKSTEP_GOLDENS;
  const fs::path exported = goldens / "../exports/mobius-0.1/phi3";
  std::error_code error;
  if (goldens.empty() || !fs::is_directory(exported, error))
    GTEST_SKIP() << "the exports are not there";
  Pair pair = Look(goldens / "models/phi3", exported);
  ASSERT_TRUE(pair.report.healthy()) << All(pair.report);
  for (LayerSpec& layer : pair.reference.spec.layers) {
    RopeSpec& rope = *std::get<AttentionSpec>(layer.mixer).rope;
    auto& longrope = std::get<LongRopeScaling>(*rope.scaling);
    for (double& factor : longrope.short_factor) factor *= 1.25;
    for (double& factor : longrope.long_factor) factor *= 0.75;
  }
  pair.report = Must(Audit(pair.reference, pair.candidate));
  EXPECT_EQ(pair.report.findings.size(), 2u) << All(pair.report);
  const RepairPlan plan = Must(PlanRepair(pair.candidate, pair.report));
  EXPECT_TRUE(plan.left.empty());
  const TestFolder scratch;
  ASSERT_TRUE(WriteRepair(pair.candidate, plan, scratch / "new"));
  const OnnxModel mended = Must(OnnxModel::Open(scratch / "new"));
  const AuditReport report = Must(Audit(pair.reference, mended));
  EXPECT_TRUE(report.healthy()) << All(report);
}

}  // namespace
}  // namespace lockstep

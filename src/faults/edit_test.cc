#include "faults/edit.h"

#include <gtest/gtest.h>

#include <set>

#include "base/mapped_file.h"
#include "faults/catalog.h"
#include "spec/fields.h"
#include "spec/random_spec.h"

namespace lockstep {
namespace {

constexpr uint64_t kSeeds = 60;

Edit Parsed(std::string_view text) {
  const auto edit = ParseEdit(text);
  EXPECT_TRUE(edit) << text << ": " << edit.error().message;
  return edit.value_or(Edit{});
}

std::string ErrorOf(std::string_view text) {
  const auto edit = ParseEdit(text);
  EXPECT_FALSE(edit) << text;
  return edit ? "" : edit.error().message;
}

TEST(Edit, TextOfEachKindReadsBack) {
  for (const char* text :
       {"", "layers[*].mixer.rope.scaling=null", "run.kv_dtype=\"f16\"",
        "layers[0,2-4].mlp.activation=\"gelu\"; lm_head.tied=false; run.chunk_size=7; weights: "
        "zero "
        "layers[*].up_proj.bias",
        "architecture=\"a;b\\\"=c\"; weights: scale layers[3].q_proj.weight by 0.0078125",
        "weights: round final_norm.weight to bf16", "weights: swap layers[1].* with layers[0]",
        "weights: take layers[*].experts[*].gate_proj.weight from up_proj",
        "weights: take layers[2].experts[3].up_proj.weight from layers[0].experts[1].gate_proj",
        "weights: halves_to_pairs layers[*].k_proj.weight heads 8",
        "weights: shift_blocks layers[*].shared_expert.down_proj.weight by 1 block 32",
        "weights: zero layers[1].experts[0].*"})
    EXPECT_EQ(ToString(Parsed(text)), text);
}

TEST(Edit, SpacesMakeNoDifference) {
  EXPECT_EQ(Parsed(" final_norm.eps = 1e-5 ;weights:  zero   lm_head.weight "),
            Parsed("final_norm.eps=1e-5; weights: zero lm_head.weight"));
}

TEST(Edit, WhatCannotBeReadIsASentence) {
  EXPECT_NE(ErrorOf("nonsense").find("expected PATH=JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("run.kv_dtype=f16").find("text needs quotes"), std::string::npos);
  EXPECT_NE(ErrorOf("weights: zeros lm_head.weight").find("did you mean \"zero\""),
            std::string::npos);
  EXPECT_NE(ErrorOf("weights: zero layers[*].upproj.weight").find("did you mean \"up_proj\""),
            std::string::npos);
  for (const char* text :
       {"=1", "a=", ";", "weights:", "weights: zero", "weights: zero lm_head.weight now",
        "weights: scale lm_head.weight by many", "weights: scale lm_head.weight by inf",
        "weights: zero layers[0-99999999999].up_proj.weight", "weights: zero layers[2,1].*",
        "weights: zero layers[0].lm_head.weight", "weights: zero up_proj.weight",
        "weights: zero layers[*].gate_proj", "weights: swap layers[*].* with up_proj",
        "weights: zero_tail layers[*].up_proj.weight block 0", "weights: zero layers[", "a=[1"})
    EXPECT_LT(ErrorOf(text).size(), kMaxMessage + 4) << text;
}

TEST(Edit, ActsOnSpecAndRunAndLeavesThemValid) {
  ModelSpec spec = RandomSpec(3);
  const Edit edit = Parsed("final_norm.eps=0.25; run.chunk_size=3; run.ring_cache=\"stuck\"");
  EXPECT_EQ(EditedSpec(spec, edit)->final_norm.eps, 0.25);
  EXPECT_EQ(EditedRun({}, edit)->ring_cache, RingCache::kStuck);
  EXPECT_FALSE(EditedSpec(spec, Parsed("final_norm.eps=-1")));
  EXPECT_FALSE(EditedSpec(spec, Parsed("final_norm.epsilon=1")));
  EXPECT_FALSE(EditedRun({}, Parsed("run.chunk_size=0")));
  EXPECT_FALSE(EditedRun({}, Parsed("run.first_position=-1")));
}

TEST(Catalog, IdsDiffer) {
  std::set<std::string_view> ids;
  for (const Fault& fault : KnownFaults()) {
    EXPECT_TRUE(ids.insert(fault.id).second) << fault.id;
    EXPECT_EQ(FindFault(fault.id), &fault);
  }
  for (const NegativeControl& control : NegativeControls())
    EXPECT_TRUE(ids.insert(control.id).second) << control.id;
  EXPECT_EQ(FindFault("no such"), nullptr);
}

// What a fault says applies to a spec does, changes something, and survives its own text.
void ExpectGood(const ModelSpec& spec, const std::vector<Edit>& edits, std::string_view id) {
  for (const Edit& edit : edits) {
    const auto edited = EditedSpec(spec, edit);
    ASSERT_TRUE(edited) << id << ": " << ToString(edit) << ": " << edited.error().message << "\n"
                        << Describe(spec);
    const auto run = EditedRun({}, edit);
    ASSERT_TRUE(run) << id << ": " << run.error().message;
    EXPECT_TRUE(*edited != spec || *run != RunSpec{} || !edit.weights.empty()) << id;
    const auto back = ParseEdit(ToString(edit));
    ASSERT_TRUE(back) << id << ": " << back.error().message;
    EXPECT_EQ(*back, edit) << id << ": " << ToString(edit);
  }
}

TEST(Catalog, EveryFaultAppliesWhereItSaysSoOnRandomSpecs) {
  std::set<std::string_view> applied;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    for (const Fault& fault : KnownFaults()) {
      const auto edits = fault.edits(spec);
      if (!edits.empty()) applied.insert(fault.id);
      ExpectGood(spec, edits, fault.id);
      EXPECT_GE(ShortestPrompt(fault, spec), 1);
    }
    for (const NegativeControl& control : NegativeControls())
      ExpectGood(spec, control.edits(spec), control.id);
  }
  EXPECT_GT(applied.size(), KnownFaults().size() * 3 / 4);
}

TEST(Docs, TheFaultsPageIsFresh) {
  const auto page = ReadTextFile(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/faults.md");
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(*page, FaultsPage()) << "lockstep inspect --faults > docs/faults.md writes it anew";
}

}  // namespace
}  // namespace lockstep

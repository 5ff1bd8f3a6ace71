#include "model/apply_edit.h"

#include <gtest/gtest.h>

#include "model/random_weights.h"
#include "model/weight_changes.h"
#include "spec/random_spec.h"

namespace lockstep {
namespace {

// Two layers of plain attention, 4 query heads on 2, hidden size 8, gated MLPs with biases.
ModelSpec Plain() {
  ModelSpec spec;
  spec.max_position_embeddings = 32;
  spec.embedding = {.vocab_size = 11, .hidden_size = 8};
  AttentionSpec attention{.num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 4};
  attention.q_bias = true;
  LayerSpec layer{.mixer = attention,
                  .mlp = MlpSpec{.intermediate_size = 6, .up_bias = true, .down_bias = true}};
  layer.mixer_pre_norm = NormSpec{.eps = 1e-6};
  spec.layers = {layer, layer};
  spec.final_norm = NormSpec{.eps = 1e-6};
  spec.lm_head.tied = true;
  return spec;
}

class EditedModel : public testing::Test {
 protected:
  // Of the plain model.
  Result<Weights> Apply(std::string_view text) {
    const auto edit = ParseEdit(text);
    EXPECT_TRUE(edit) << edit.error().message;
    const auto edited = EditedSpec(spec, *edit);
    EXPECT_TRUE(edited) << edited.error().message;
    return EditedWeights(*edited, owned->weights, edit->weights);
  }
  static std::vector<float> Values(const Weights& weights, const WeightId& id) {
    const WeightView* view = weights.Find(id);
    if (view == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(view->elements()));
    view->ReadRows(0, view->rows, values.data(), view->cols);
    return values;
  }
  std::vector<float> Before(const WeightId& id) const { return Values(owned->weights, id); }
  std::string ErrorOf(std::string_view text) {
    const auto weights = Apply(text);
    EXPECT_FALSE(weights) << text;
    return weights ? "" : weights.error().message;
  }

  const ModelSpec spec = Plain();
  const std::unique_ptr<OwnedWeights> owned = RandomWeights(spec, 5);
};

TEST_F(EditedModel, WeightsThatNoEditNamesAreNotCopied) {
  const auto weights = Apply("weights: zero layers[0].up_proj.bias");
  ASSERT_TRUE(weights) << weights.error().message;
  for (const auto& [id, view] : owned->weights.all()) {
    const bool named = id == WeightId{Role::kUpProj, Part::kBias, 0};
    EXPECT_EQ(weights->Find(id)->data == view.data, !named) << ToString(id);
  }
  EXPECT_EQ(Values(*weights, {Role::kUpProj, Part::kBias, 0}), std::vector<float>(6));
}

TEST_F(EditedModel, WhatTheEditedSpecDoesNotNeedIsDropped) {
  const auto weights = Apply("layers[*].mixer.q_bias=false");
  ASSERT_TRUE(weights);
  EXPECT_EQ(weights->Find({Role::kQProj, Part::kBias, 0}), nullptr);
}

TEST_F(EditedModel, WhatItNeedsInAdditionMustBeMade) {
  EXPECT_NE(ErrorOf("lm_head.tied=false").find("zero lm_head.weight"), std::string::npos);
  const auto zeros = Apply("lm_head.tied=false; weights: zero lm_head.weight");
  ASSERT_TRUE(zeros);
  EXPECT_EQ(Values(*zeros, {Role::kLmHead}), std::vector<float>(88));
  const auto taken = Apply("lm_head.tied=false; weights: take lm_head.weight from embed_tokens");
  ASSERT_TRUE(taken);
  EXPECT_EQ(Values(*taken, {Role::kLmHead}), Before({Role::kEmbedTokens}));
}

TEST_F(EditedModel, AShapeThatDoesNotFitIsASentence) {
  EXPECT_NE(
      ErrorOf("layers[1].mlp.intermediate_size=5").find("layers.1.gate_proj.weight as [5, 8]"),
      std::string::npos);
  EXPECT_NE(ErrorOf("weights: swap layers[*].q_proj.weight with k_proj").find("fit"),
            std::string::npos);
  EXPECT_NE(ErrorOf("weights: zero layers[7].up_proj.bias").find("no such weight"),
            std::string::npos);
  EXPECT_NE(ErrorOf("weights: take layers[0].up_proj.bias from q_norm").find("has no"),
            std::string::npos);
}

TEST_F(EditedModel, FittingMakesNoHugeWeightOfASmallOne) {
  EXPECT_NE(ErrorOf("embedding.vocab_size=2000000000; weights: fit embed_tokens.weight")
                .find("cannot be made"),
            std::string::npos);
}

TEST_F(EditedModel, SwappingTwiceChangesNothing) {
  const std::string swap = "weights: swap layers[1].* with layers[0]";
  const auto once = Apply(swap);
  ASSERT_TRUE(once);
  EXPECT_EQ(Values(*once, {Role::kQProj, Part::kWeight, 0}),
            Before({Role::kQProj, Part::kWeight, 1}));
  const auto twice = Apply(swap + "; " + swap);
  ASSERT_TRUE(twice);
  for (const auto& [id, view] : owned->weights.all()) EXPECT_EQ(Values(*twice, id), Before(id));
}

TEST_F(EditedModel, ChangesAndTheirInversesCancel) {
  for (const char* text :
       {"weights: halves_to_pairs layers[*].q_proj.weight heads 0; "
        "weights: pairs_to_halves layers[*].q_proj.weight heads 0",
        "weights: halves_to_pairs layers[*].q_proj.bias heads 4; "
        "weights: pairs_to_halves layers[*].q_proj.bias heads 4",
        "weights: interleave layers[*].gate_proj.weight with up_proj; "
        "weights: deinterleave layers[*].gate_proj.weight with up_proj",
        "weights: deinterleave layers[*].gate_proj.bias with up_proj; "
        "weights: interleave layers[*].gate_proj.bias with up_proj",
        "weights: reverse_rows layers[*].down_proj.weight; "
        "weights: reverse_rows layers[*].down_proj.weight",
        "weights: reverse_columns layers[*].down_proj.weight; "
        "weights: reverse_columns layers[*].down_proj.weight",
        "weights: swap_pairs layers[*].o_proj.weight; weights: swap_pairs layers[*].o_proj.weight",
        "weights: scale layers[0].o_proj.weight by 4; "
        "weights: scale layers[0].o_proj.weight by 0.25"}) {
    const auto weights = Apply(text);
    ASSERT_TRUE(weights) << weights.error().message;
    for (const auto& [id, view] : owned->weights.all())
      EXPECT_EQ(Values(*weights, id), Before(id)) << text << ": " << ToString(id);
  }
}

TEST(WeightChanges, EachDoesWhatItsNameSays) {
  const Dense matrix{2, 4, {1, 2, 3, 4, 5, 6, 7, 8}};
  const auto changed = [&](WeightEdit edit) {
    Dense weight = matrix;
    Change(edit, nullptr, weight);
    return weight.values;
  };
  using V = std::vector<float>;
  EXPECT_EQ(changed({.change = WeightChange::kTranspose}), (V{1, 5, 2, 6, 3, 7, 4, 8}));
  EXPECT_EQ(changed({.change = WeightChange::kSwapPairs}), (V{2, 1, 4, 3, 6, 5, 8, 7}));
  EXPECT_EQ(changed({.change = WeightChange::kZeroTail, .count = 1}), (V{1, 2, 3, 0, 5, 6, 7, 0}));
  EXPECT_EQ(changed({.change = WeightChange::kAdd, .value = 1}), (V{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(changed({.change = WeightChange::kShiftBlocks, .value = 1, .count = 2}),
            (V{3, 4, 7, 8, 11, 12, 15, 16}));
  EXPECT_EQ(changed({.change = WeightChange::kOneBlockScale, .count = 2}),
            (V{1, 2, 1.5, 2, 5, 6, 5.25, 6}));
  EXPECT_EQ(Fitted(matrix, 1, 3).values, (V{1, 2, 3}));
  EXPECT_EQ(Fitted({1, 2, {1, 2}}, 1, 5).values, (V{1, 2, 1, 2, 1}));
  Dense a{2, 1, {1, 2}}, b{2, 1, {3, 4}};
  Interleave(a, b);  // 1 3 2 4
  EXPECT_EQ(a.values, (V{1, 3}));
  EXPECT_EQ(b.values, (V{2, 4}));
}

TEST(WeightChanges, TiledHeadsMoveToWhereTheirKeysAreRead) {
  const LayerSpec layer{
      .mixer = AttentionSpec{.num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 1}};
  Dense q{4, 1, {0, 1, 2, 3}};
  Change({.change = WeightChange::kTileHeads, .role = Role::kQProj}, &layer, q);
  // kv head 0 is read at places 0 and 1, kv head 1 at 2 and 3: query heads 0, 2 and 1, 3.
  EXPECT_EQ(q.values, (std::vector<float>{0, 2, 1, 3}));
  Dense o{1, 4, {0, 1, 2, 3}};
  Change({.change = WeightChange::kTileHeads, .role = Role::kOProj}, &layer, o);
  EXPECT_EQ(o.values, (std::vector<float>{0, 2, 1, 3}));
}

}  // namespace
}  // namespace lockstep

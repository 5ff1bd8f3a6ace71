// The mixture-of-experts families, against the checkpoints and configurations that transformers
// wrote (tests/golden/models), and the GGUF keys that llama.cpp's converters write for the same.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "arch/architecture.h"
#include "formats/checkpoint.h"
#include "spec/weights.h"

namespace lockstep {
namespace {

constexpr const char* kCases[] = {"mixtral", "qwen2-moe", "qwen3-moe",   "olmoe",   "granitemoe",
                                  "gpt-oss", "phimoe",    "deepseek-v3", "lfm2-moe"};

Checkpoint Open(const std::string& name) {
  auto checkpoint =
      OpenCheckpoint(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/models/" + name);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint ? *std::move(checkpoint) : Checkpoint{};
}

Result<ModelSpec> BuildFrom(const Json& json) {
  HfConfig config(json, "config.json");
  const HfArchitecture* row = FindHfArchitecture(json.at("model_type").get<std::string>());
  return row->build(config);
}

ModelSpec Spec(const Json& json) {
  auto spec = BuildFrom(json);
  EXPECT_TRUE(spec) << spec.error().message;
  return spec ? *std::move(spec) : ModelSpec{};
}

Json Config(const std::string& name) { return Open(name).config; }

// The sentence that a configuration is refused with.
std::string Refusal(const Json& json) {
  const auto spec = BuildFrom(json);
  return spec ? "accepted" : spec.error().message;
}

const MoeSpec& Moe(const ModelSpec& spec, size_t layer) {
  return std::get<MoeSpec>(spec.layers.at(layer).mlp);
}
const AttentionSpec& Attention(const ModelSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}

std::string Replaced(std::string_view pattern, const WeightId& id) {
  std::string name(pattern);
  const std::pair<std::string, int> parts[] = {{"{layer}", id.layer}, {"{expert}", id.expert}};
  for (const auto& [mark, number] : parts)
    if (const size_t at = name.find(mark); at != std::string::npos)
      name.replace(at, mark.size(), std::to_string(number));
  return name;
}

std::string TensorName(const TensorRule& rule, const WeightId& id) {
  const std::string stem = Replaced(rule.name, id);
  const bool weight = id.part == Part::kWeight;
  if (rule.suffix == TensorSuffix::kDotted) return stem + (weight ? ".weight" : ".bias");
  return weight ? stem : stem + "_bias";
}

class MoeCheckpoint : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Goldens, MoeCheckpoint, testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST_P(MoeCheckpoint, HoldsEveryWeightThatItsSpecNeedsAndNoOther) {
  const Checkpoint checkpoint = Open(GetParam());
  const ModelSpec spec = Spec(checkpoint.config);
  const HfArchitecture* row = FindHfArchitecture(spec.architecture);
  ASSERT_NE(row, nullptr);
  // What the weights of each tensor add up to must be what the tensor holds.
  std::map<std::string, int64_t> elements;
  for (const WeightSlot& slot : RequiredWeights(spec)) {
    const TensorInfo* tensor = nullptr;
    for (const TensorRule& rule : row->tensors) {
      if (rule.role != slot.id.role || tensor != nullptr) continue;
      tensor = checkpoint.Find(TensorName(rule, slot.id));
    }
    ASSERT_NE(tensor, nullptr) << ToString(slot.id);
    elements[tensor->name] += slot.rows * slot.cols;
  }
  for (const TensorInfo& tensor : checkpoint.tensors)
    EXPECT_EQ(elements[tensor.name], tensor.elements()) << tensor.name;
}

TEST_P(MoeCheckpoint, HasNoConfigurationKeyThatNothingReads) {
  const Json json = Config(GetParam());
  HfConfig config(json, "config.json");
  ASSERT_TRUE(FindHfArchitecture(json.at("model_type").get<std::string>())->build(config));
  EXPECT_EQ(config.UnreadKeys(), std::vector<std::string>{});
}

TEST(Mixtral, ChosenWeightsAreDividedByTheirSum) {
  const Json json = Config("mixtral");
  const ModelSpec spec = Spec(json);
  EXPECT_EQ(Moe(spec, 0).num_experts, json["num_local_experts"]);
  EXPECT_EQ(Moe(spec, 0).num_experts_per_tok, json["num_experts_per_tok"]);
  EXPECT_EQ(Moe(spec, 0).router.scoring, RouterScoring::kSoftmaxThenTopK);
  EXPECT_TRUE(Moe(spec, 0).router.normalize_top_k);
  EXPECT_FALSE(Attention(spec, 0).sliding_window);
  EXPECT_EQ(Attention(spec, 0).rope->theta, 1e6);
}

TEST(Mixtral, OldLayoutsOfTheConfigurationMeanTheSame) {
  Json json = Config("mixtral");
  const ModelSpec spec = Spec(json);
  json.erase("rope_parameters");
  json["rope_theta"] = 1000000.0;
  EXPECT_EQ(Spec(json), spec);
  json.erase("rope_theta");  // 1e6 is the default of this class
  EXPECT_EQ(Spec(json), spec);
}

TEST(Qwen2Moe, SharedExpertHasASigmoidGate) {
  const Json json = Config("qwen2-moe");
  const ModelSpec spec = Spec(json);
  EXPECT_FALSE(Moe(spec, 0).router.normalize_top_k);
  ASSERT_TRUE(Moe(spec, 0).shared_expert);
  EXPECT_TRUE(Moe(spec, 0).shared_expert->sigmoid_gate);
  EXPECT_EQ(Moe(spec, 0).shared_expert->mlp.intermediate_size,
            json["shared_expert_intermediate_size"]);
  EXPECT_EQ(Moe(spec, 0).expert.intermediate_size, json["moe_intermediate_size"]);
  EXPECT_TRUE(Attention(spec, 0).q_bias);
  EXPECT_FALSE(Attention(spec, 0).o_bias);
}

TEST(Qwen2Moe, SlidesInTheEvenLayersBelowMaxWindowLayers) {
  Json json = Config("qwen2-moe");
  json.erase("layer_types");
  json["use_sliding_window"] = true;
  json["sliding_window"] = 7;
  json["max_window_layers"] = 2;
  const ModelSpec spec = Spec(json);
  EXPECT_EQ(Attention(spec, 0).sliding_window, 7);
  EXPECT_FALSE(Attention(spec, 1).sliding_window);
  EXPECT_FALSE(Attention(spec, 2).sliding_window);
}

TEST(Qwen3Moe, MlpOnlyLayersAndTheSparseStepHaveNoExperts) {
  Json json = Config("qwen3-moe");
  const ModelSpec spec = Spec(json);
  EXPECT_TRUE(Moe(spec, 0).router.normalize_top_k);
  EXPECT_FALSE(Moe(spec, 0).shared_expert);
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[1].mlp).intermediate_size, json["intermediate_size"]);
  EXPECT_TRUE(Attention(spec, 0).q_norm);
  EXPECT_EQ(Attention(spec, 0).qk_norm_scope, QkNormScope::kHead);
  json["mlp_only_layers"] = Json::array();
  json["decoder_sparse_step"] = 2;
  const ModelSpec stepped = Spec(json);
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(stepped.layers[0].mlp));
  EXPECT_TRUE(std::holds_alternative<MoeSpec>(stepped.layers[1].mlp));
}

TEST(Olmoe, NormsSpanAllHeadsAndTheClipIsRead) {
  Json json = Config("olmoe");
  const ModelSpec spec = Spec(json);
  EXPECT_EQ(Attention(spec, 0).qk_norm_scope, QkNormScope::kProjection);
  EXPECT_FALSE(Attention(spec, 0).clip_qkv);
  EXPECT_FALSE(Moe(spec, 0).router.normalize_top_k);
  json["clip_qkv"] = 8.0;
  EXPECT_EQ(Attention(Spec(json), 0).clip_qkv, 8.0);
}

TEST(GraniteMoe, MultipliersAreFactsAndTheLogitsAreDivided) {
  const ModelSpec spec = Spec(Config("granitemoe"));
  EXPECT_EQ(spec.embedding.scale.value, 12);
  EXPECT_EQ(Attention(spec, 0).query_scale.value, 0.1);
  EXPECT_EQ(spec.layers[0].residual.value, 0.22);
  EXPECT_EQ(spec.lm_head.logit_scale.value, 6);
  EXPECT_TRUE(spec.lm_head.logit_scale.divide);
  EXPECT_EQ(Moe(spec, 0).router.scoring, RouterScoring::kTopKThenSoftmax);
}

TEST(GptOss, EvenLayersSlideAndEveryHeadHasASink) {
  Json json = Config("gpt-oss");
  const ModelSpec spec = Spec(json);
  json.erase("layer_types");  // the default alternates
  EXPECT_EQ(Spec(json), spec);
  EXPECT_EQ(Attention(spec, 0).sliding_window, json["sliding_window"]);
  EXPECT_FALSE(Attention(spec, 1).sliding_window);
  EXPECT_TRUE(Attention(spec, 1).sinks);
  EXPECT_TRUE(Attention(spec, 1).o_bias);
  EXPECT_EQ(Moe(spec, 0).router.scoring, RouterScoring::kTopKThenSoftmax);
  EXPECT_TRUE(Moe(spec, 0).router.bias);
  EXPECT_TRUE(Moe(spec, 0).expert.up_bias);
  EXPECT_EQ(Moe(spec, 0).expert.clamped_glu, (ClampedGlu{1.702, 7, 1}));
}

TEST(GptOss, YarnIsNotTruncatedAndIsTheDefault) {
  Json json = Config("gpt-oss");
  const auto yarn = std::get<YarnScaling>(*Attention(Spec(json), 0).rope->scaling);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.original_max_position_embeddings, 32);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1);
  json.erase("rope_parameters");
  const RopeSpec rope = *Attention(Spec(json), 0).rope;
  EXPECT_EQ(rope.theta, 150000);
  EXPECT_EQ(std::get<YarnScaling>(*rope.scaling).factor, 32);
  EXPECT_FALSE(std::get<YarnScaling>(*rope.scaling).truncate);
}

TEST(PhiMoe, HasLayerNormsBiasesAndASparseMixer) {
  const ModelSpec spec = Spec(Config("phimoe"));
  EXPECT_EQ(spec.final_norm.kind, NormKind::kLayer);
  EXPECT_TRUE(spec.layers[0].mlp_pre_norm->bias);
  EXPECT_TRUE(spec.lm_head.bias);
  EXPECT_TRUE(Attention(spec, 0).o_bias);
  EXPECT_EQ(Moe(spec, 0).router.scoring, RouterScoring::kSparseMixer);
  EXPECT_EQ(Moe(spec, 0).router.sparse_mixer_jitter, 0.01);
}

TEST(PhiMoe, LongRopeTakesItsScaleFromTheFileAndNeverItsLongFactors) {
  Json json = Config("phimoe");
  const auto half = static_cast<size_t>(Attention(Spec(json), 0).rope->rotary_dim / 2);
  json["rope_parameters"] = {{"rope_theta", 10000.0},
                             {"rope_type", "longrope"},
                             {"short_factor", std::vector<double>(half, 1.5)},
                             {"long_factor", std::vector<double>(half, 4.0)},
                             {"short_mscale", 1.25},
                             {"long_mscale", 1.25},
                             {"original_max_position_embeddings", 32}};
  const auto longrope = std::get<LongRopeScaling>(*Attention(Spec(json), 0).rope->scaling);
  EXPECT_EQ(longrope.attention_factor, 1.25);
  EXPECT_EQ(longrope.long_factor, longrope.short_factor);
  json["rope_parameters"]["long_mscale"] = 1.5;
  EXPECT_NE(Refusal(json).find("long_mscale"), std::string::npos) << Refusal(json);
}

TEST(DeepseekV3, RouterIsSigmoidInGroupsWithABiasForChoosing) {
  const Json json = Config("deepseek-v3");
  const ModelSpec spec = Spec(json);
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(spec.layers[0].mlp));
  const RouterSpec& router = Moe(spec, 1).router;
  EXPECT_EQ(router.scoring, RouterScoring::kSigmoidThenTopK);
  EXPECT_TRUE(router.selection_bias);
  EXPECT_EQ(router.normalize_epsilon, 1e-20);
  EXPECT_EQ(router.routed_scaling.value, 2.5);
  EXPECT_EQ(router.groups, (RouterGroups{4, 2, 2}));
  ASSERT_TRUE(Moe(spec, 1).shared_expert);
  EXPECT_FALSE(Moe(spec, 1).shared_expert->sigmoid_gate);
  const auto& mla = std::get<MlaSpec>(spec.layers[0].mixer);
  EXPECT_EQ(mla.rope.layout, RopeLayout::kInterleaved);
  EXPECT_EQ(mla.rope.rotary_dim, json["qk_rope_head_dim"]);
  EXPECT_DOUBLE_EQ(mla.query_scale.value, 1 / std::sqrt(json["qk_head_dim"].get<double>()));
}

TEST(DeepseekV3, MscaleAllDimEntersTheQueryScaleSquared) {
  Json json = Config("deepseek-v3");
  json["rope_scaling"] = {{"type", "yarn"},
                          {"factor", 40.0},
                          {"mscale", 1.0},
                          {"mscale_all_dim", 1.0},
                          {"beta_fast", 32},
                          {"beta_slow", 1},
                          {"original_max_position_embeddings", 64}};
  const ModelSpec spec = Spec(json);
  const auto& mla = std::get<MlaSpec>(spec.layers[0].mixer);
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(mla.query_scale.value,
                   mscale * mscale / std::sqrt(json["qk_head_dim"].get<double>()));
  EXPECT_EQ(std::get<YarnScaling>(*mla.rope.scaling).attention_factor, 1);
}

TEST(DeepseekV3, ANullQueryRankIsOneProjection) {
  Json json = Config("deepseek-v3");
  json["q_lora_rank"] = nullptr;
  const ModelSpec spec = Spec(json);
  EXPECT_FALSE(std::get<MlaSpec>(spec.layers[0].mixer).q_lora_rank);
  EXPECT_FALSE(std::get<MlaSpec>(spec.layers[0].mixer).q_a_norm);
}

TEST(DeepseekV3, ImpossibleGroupsAreRefused) {
  Json json = Config("deepseek-v3");
  json["n_group"] = 3;
  EXPECT_EQ(Refusal(json), "config.json: \"n_group\" is 3, expected a divisor of the 8 experts");
  json["n_group"] = 0;
  EXPECT_NE(Refusal(json).find("n_group"), std::string::npos);
}

TEST(DeepseekV2, GroupsAreRankedByTheirBestExpert) {
  Json json = Config("deepseek-v3");
  json["model_type"] = "deepseek_v2";
  json["topk_method"] = "group_limited_greedy";
  const ModelSpec spec = Spec(json);
  EXPECT_EQ(Moe(spec, 1).router.scoring, RouterScoring::kSoftmaxThenTopK);
  EXPECT_EQ(Moe(spec, 1).router.groups, (RouterGroups{4, 2, 1}));
  EXPECT_FALSE(Moe(spec, 1).router.normalize_top_k);
  json["topk_method"] = "greedy";
  EXPECT_FALSE(Moe(Spec(json), 1).router.groups);
}

TEST(Lfm2Moe, FirstLayersAreDenseAndTheSumHasAnEpsilon) {
  const ModelSpec spec = Spec(Config("lfm2-moe"));
  EXPECT_TRUE(std::holds_alternative<MlpSpec>(spec.layers[0].mlp));
  EXPECT_TRUE(std::holds_alternative<ShortConvSpec>(spec.layers[0].mixer));
  EXPECT_TRUE(Attention(spec, 1).q_norm);
  EXPECT_EQ(Moe(spec, 1).router.scoring, RouterScoring::kSigmoidThenTopK);
  EXPECT_EQ(Moe(spec, 1).router.normalize_epsilon, 1e-6);
  EXPECT_TRUE(Moe(spec, 1).router.selection_bias);
  EXPECT_TRUE(spec.lm_head.tied);
}

TEST_P(MoeCheckpoint, CountsOfExpertsAreBounded) {
  Json json = Config(GetParam());
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (json.contains(key)) json[key] = int64_t{1} << 40;
  EXPECT_NE(Refusal(json).find("1099511627776, expected 1 to 1024 experts"), std::string::npos)
      << Refusal(json);
  json = Config(GetParam());
  json["num_experts_per_tok"] = 2000;
  EXPECT_NE(Refusal(json).find("\"num_experts_per_tok\" is 2000"), std::string::npos)
      << Refusal(json);
}

}  // namespace
}  // namespace lockstep

// The key-values that llama.cpp's converter writes for a mixture-of-experts checkpoint must state
// what its config.json states. The checkpoints are those of tests/golden/models.
#include <gtest/gtest.h>

#include "arch/architecture.h"
#include "arch/gguf_test_file.h"
#include "formats/checkpoint.h"

namespace lockstep {
namespace {

Json Config(const std::string& golden) {
  auto checkpoint =
      OpenCheckpoint(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/models/" + golden);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint->config;
}

ModelSpec HfSpec(const std::string& golden) {
  const Json json = Config(golden);
  HfConfig config(json, "config.json");
  auto spec = FindHfArchitecture(json.at("model_type").get<std::string>())->build(config);
  EXPECT_TRUE(spec) << spec.error().message;
  return *spec;
}

Result<ModelSpec> Build(const GgufTestFile& file, std::string architecture) {
  GgufConfig config(file.checkpoint, architecture);
  auto spec = FindGgufArchitecture(architecture)->build(config);
  EXPECT_EQ(config.UnreadKeys(), std::vector<std::string>{});
  return spec;
}

// What the converter writes for every architecture.
GgufTestFile Common(const std::string& architecture, const Json& json) {
  GgufTestFile file(architecture);
  const int64_t vocab = json["vocab_size"], hidden = json["hidden_size"];
  file.Int("context_length", json["max_position_embeddings"]).Int("embedding_length", hidden);
  file.Int("block_count", json["num_hidden_layers"]).Int("vocab_size", vocab);
  file.Int("feed_forward_length", json["intermediate_size"]);
  file.Int("attention.head_count", json["num_attention_heads"]);
  file.Int("attention.head_count_kv", json["num_key_value_heads"]);
  file.Float("attention.layer_norm_rms_epsilon",
             json.contains("norm_eps") ? json["norm_eps"] : json["rms_norm_eps"]);
  if (json.contains("head_dim") && !json["head_dim"].is_null()) {
    file.Int("attention.key_length", json["head_dim"]);
    file.Int("attention.value_length", json["head_dim"]);
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (json.contains(key)) file.Int("expert_count", json[key]);
  file.Int("expert_used_count", json["num_experts_per_tok"]);
  if (json.contains("moe_intermediate_size"))
    file.Int("expert_feed_forward_length", json["moe_intermediate_size"]);
  file.Float("rope.freq_base", json["rope_parameters"]["rope_theta"]);
  file.Int("/tokenizer.ggml.bos_token_id", json["bos_token_id"]);
  file.Int("/tokenizer.ggml.eos_token_id", json["eos_token_id"]);
  file.Int("/tokenizer.ggml.padding_token_id", json["pad_token_id"]);
  file.Tensor("token_embd.weight", {vocab, hidden});
  if (!json["tie_word_embeddings"]) file.Tensor("output.weight", {vocab, hidden});
  return file;
}

void ExpectSame(const GgufTestFile& file, const std::string& architecture,
                const std::string& golden) {
  auto spec = Build(file, architecture);
  ASSERT_TRUE(spec) << spec.error().message;
  ModelSpec expected = HfSpec(golden);
  expected.architecture = architecture;
  EXPECT_EQ(spec->embedding, expected.embedding);
  EXPECT_EQ(spec->lm_head, expected.lm_head);
  EXPECT_EQ(spec->final_norm, expected.final_norm);
  EXPECT_EQ(spec->tokens, expected.tokens);
  ASSERT_EQ(spec->layers.size(), expected.layers.size());
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    EXPECT_EQ(spec->layers[i].mixer, expected.layers[i].mixer) << i;
    EXPECT_EQ(spec->layers[i].mlp, expected.layers[i].mlp) << i;
  }
  EXPECT_EQ(*spec, expected);
}

// Only their presence is read.
void AddBiases(GgufTestFile& file, int64_t num_layers, bool with_o) {
  for (int64_t i = 0; i < num_layers; ++i) {
    for (const char* name : {"attn_q.bias", "attn_k.bias", "attn_v.bias"})
      file.Tensor(fmt::format("blk.{}.{}", i, name), {1});
    if (with_o) file.Tensor(fmt::format("blk.{}.attn_output.bias", i), {1});
  }
}

TEST(GgufMoe, LlamaWithExpertsIsMixtral) {
  ExpectSame(Common("llama", Config("mixtral")), "llama", "mixtral");
}

TEST(GgufMoe, Qwen2MoeStatesTheSame) {
  const Json json = Config("qwen2-moe");
  GgufTestFile file = Common("qwen2moe", json);
  AddBiases(file, json["num_hidden_layers"], /*with_o=*/false);
  file.Int("expert_shared_feed_forward_length", json["shared_expert_intermediate_size"]);
  ExpectSame(file, "qwen2moe", "qwen2-moe");
}

TEST(GgufMoe, Qwen3MoeStatesTheSameWhereEveryLayerHasExperts) {
  const auto spec = Build(Common("qwen3moe", Config("qwen3-moe")), "qwen3moe");
  ASSERT_TRUE(spec) << spec.error().message;
  const ModelSpec expected = HfSpec("qwen3-moe");
  EXPECT_EQ(spec->layers[0], expected.layers[0]);
  EXPECT_EQ(spec->layers[1], expected.layers[0]);  // GGUF cannot say mlp_only_layers
}

TEST(GgufMoe, OlmoeStatesTheSame) {
  ExpectSame(Common("olmoe", Config("olmoe")), "olmoe", "olmoe");
}

TEST(GgufMoe, GraniteMoeStatesTheSame) {
  const Json json = Config("granitemoe");
  GgufTestFile file = Common("granitemoe", json);
  file.Float("embedding_scale", json["embedding_multiplier"]);
  file.Float("attention.scale", json["attention_multiplier"]);
  file.Float("residual_scale", json["residual_multiplier"]);
  file.Float("logit_scale", json["logits_scaling"]);
  ExpectSame(file, "granitemoe", "granitemoe");
}

TEST(GgufMoe, GptOssStatesTheSame) {
  const Json json = Config("gpt-oss");
  GgufTestFile file = Common("gpt-oss", json);
  AddBiases(file, json["num_hidden_layers"], /*with_o=*/true);
  file.Int("attention.sliding_window", json["sliding_window"]);
  file.Int("expert_feed_forward_length", json["intermediate_size"]);
  const Json& rope = json["rope_parameters"];
  file.Text("rope.scaling.type", "yarn").Float("rope.scaling.factor", rope["factor"]);
  file.Int("rope.scaling.original_context_length", rope["original_max_position_embeddings"]);
  ExpectSame(file, "gpt-oss", "gpt-oss");
}

TEST(GgufMoe, PhimoeStatesTheSame) {
  const Json json = Config("phimoe");
  GgufTestFile file = Common("phimoe", json);
  AddBiases(file, json["num_hidden_layers"], /*with_o=*/true);
  file.Tensor("output.bias", {1}).Int("attention.sliding_window", 0);
  ExpectSame(file, "phimoe", "phimoe");
}

GgufTestFile Deepseek() {
  const Json json = Config("deepseek-v3");
  GgufTestFile file = Common("deepseek2", json);
  file.Int("attention.q_lora_rank", json["q_lora_rank"]);
  file.Int("attention.kv_lora_rank", json["kv_lora_rank"]);
  file.Int("attention.key_length", json["qk_head_dim"]);
  file.Int("attention.value_length", json["v_head_dim"]);
  file.Int("rope.dimension_count", json["qk_rope_head_dim"]);
  file.Int("expert_shared_count", json["n_shared_experts"]);
  file.Float("expert_weights_scale", json["routed_scaling_factor"]);
  file.Bool("expert_weights_norm", json["norm_topk_prob"]).Int("expert_gating_func", 2);
  file.Int("leading_dense_block_count", json["first_k_dense_replace"]);
  file.Int("expert_group_count", json["n_group"]);
  file.Int("expert_group_used_count", json["topk_group"]);
  file.Tensor("blk.1.exp_probs_b.bias", {1}).Tensor("blk.0.attn_kv_b.weight", {1, 1});
  return file;
}

TEST(GgufMoe, DeepseekStatesTheSame) { ExpectSame(Deepseek(), "deepseek2", "deepseek-v3"); }

TEST(GgufMoe, DeepseekWithSplitKeysAndValuesIsRefusedByTensorName) {
  GgufTestFile file = Deepseek();
  std::erase_if(file.checkpoint.tensors,
                [](const TensorInfo& tensor) { return tensor.name == "blk.0.attn_kv_b.weight"; });
  file.Tensor("blk.0.attn_k_b.weight", {4, 24, 16}).Tensor("blk.0.attn_v_b.weight", {4, 16, 24});
  GgufConfig config(file.checkpoint, "deepseek2");
  const auto spec = FindGgufArchitecture("deepseek2")->build(config);
  ASSERT_FALSE(spec);
  EXPECT_NE(spec.error().message.find("blk.0.attn_k_b.weight"), std::string::npos);
}

TEST(GgufMoe, Lfm2MoeStatesTheSame) {
  const Json json = Config("lfm2-moe");
  GgufTestFile file = Common("lfm2moe", json);
  std::vector<int32_t> heads;  // 0: a convolution
  for (const Json& type : json["layer_types"])
    heads.push_back(type == "conv" ? 0 : json["num_key_value_heads"].get<int32_t>());
  file.Ints("attention.head_count_kv", heads).Int("shortconv.l_cache", json["conv_L_cache"]);
  file.Int("leading_dense_block_count", json["num_dense_layers"]).Int("expert_gating_func", 2);
  file.Tensor("blk.1.exp_probs_b.bias", {1});
  ExpectSame(file, "lfm2moe", "lfm2-moe");
}

TEST(GgufMoe, HostileExpertCountsAreRefused) {
  for (const int64_t count : {int64_t{0}, int64_t{4000000000}}) {
    GgufTestFile file = Common("olmoe", Config("olmoe"));
    file.Int("expert_count", count);
    GgufConfig config(file.checkpoint, "olmoe");
    const auto spec = FindGgufArchitecture("olmoe")->build(config);
    ASSERT_FALSE(spec);
    EXPECT_NE(spec.error().message.find("\"olmoe.expert_count\""), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep

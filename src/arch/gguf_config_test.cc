#include "arch/gguf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "arch/gguf_test_file.h"
#include "arch/hf_config.h"

namespace lockstep {
namespace {

GgufTestFile File() {
  GgufTestFile file("llama");
  file.Int("context_length", 128).Int("embedding_length", 32).Int("block_count", 2);
  file.Int("attention.head_count", 4).Int("attention.head_count_kv", 2);
  file.Tensor("token_embd.weight", {50, 32});
  return file;
}

template <typename T>
std::string Refusal(const Result<T>& result) {
  return result ? "accepted" : result.error().message;
}

TEST(GgufConfig, MissingKeyIsNamedWithWhatWasExpected) {
  GgufTestFile file = File();
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_EQ(Refusal(config.RequireSize("feed_forward_length")),
            "model.gguf: key \"llama.feed_forward_length\" is missing, expected an integer that "
            "fits in 64 bits");
}

TEST(GgufConfig, WrongTypeIsShownAsFound) {
  GgufTestFile file = File();
  file.Text("block_count", "two");
  file.Float("rope.freq_base", std::numeric_limits<float>::quiet_NaN());
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_EQ(Refusal(config.RequireLayers()),
            "model.gguf: key \"llama.block_count\" is \"two\", expected an integer that fits in 64 "
            "bits");
  EXPECT_NE(Refusal(config.Require<double>("rope.freq_base")).find("expected a finite number"),
            std::string::npos);
  EXPECT_NE(Refusal(config.Require<bool>("context_length")).find("128, expected a bool"),
            std::string::npos);
}

TEST(GgufConfig, HugeCountsAreRefusedBeforeTheyAreUsed) {
  GgufTestFile file = File();
  file.Int("block_count", 4000000000).Int("embedding_length", 4000000000);
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_EQ(
      Refusal(config.RequireLayers()),
      fmt::format(
          "model.gguf: key \"llama.block_count\" is 4000000000, expected a number from 1 to {}",
          kMaxConfigLayers));
  EXPECT_NE(Refusal(ParseGgufCommon(config)).find("\"llama.embedding_length\" is 4000000000"),
            std::string::npos);
}

TEST(GgufConfig, PerLayerValueIsOneNumberOrOnePerLayer) {
  GgufTestFile file = File();
  file.Ints("attention.head_count_kv", {0, 2});
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_EQ(*config.RequirePerLayer("attention.head_count", 2), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(*config.RequirePerLayer("attention.head_count_kv", 2), (std::vector<int64_t>{0, 2}));
  EXPECT_NE(Refusal(config.RequirePerLayer("attention.head_count_kv", 3)).find("one per layer"),
            std::string::npos);
  file.Ints("attention.head_count_kv", {-1, 2});
  EXPECT_NE(Refusal(config.RequirePerLayer("attention.head_count_kv", 2)).find("sizes between"),
            std::string::npos);
}

TEST(GgufConfig, FloatsAreTheDecimalsThatWereWritten) {
  GgufTestFile file = File();
  file.Float("attention.layer_norm_rms_epsilon", 1e-5f);
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_EQ(*config.Require<double>("attention.layer_norm_rms_epsilon"), 1e-5);
}

TEST(GgufConfig, HeadIsTiedWhenTheFileHasNoSecondMatrix) {
  GgufTestFile file = File();
  {
    GgufConfig config(file.checkpoint, "llama");
    EXPECT_TRUE(ParseGgufCommon(config)->lm_head.tied);
  }
  file.Tensor("output.weight", {50, 32});
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_FALSE(ParseGgufCommon(config)->lm_head.tied);
  EXPECT_EQ(ParseGgufCommon(config)->embedding.vocab_size, 50);
}

TEST(GgufConfig, TokenIdsOutsideTheVocabularyAreRefused) {
  GgufTestFile file = File();
  file.Int("/tokenizer.ggml.eos_token_id", 50);
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_EQ(Refusal(ParseGgufCommon(config)),
            "model.gguf: key \"tokenizer.ggml.eos_token_id\" is 50, expected a token id below 50");
  file.Int("/tokenizer.ggml.eos_token_id", 0xffffffff);
  EXPECT_TRUE(ParseGgufCommon(config)->tokens.eos.empty());
}

TEST(GgufConfig, HeadsThatDoNotDivideAreRefused) {
  GgufTestFile file = File();
  file.Int("attention.head_count_kv", 3);
  GgufConfig config(file.checkpoint, "llama");
  EXPECT_NE(Refusal(ParseGgufHeads(config, 32, 2)).find("head_count 4 and"), std::string::npos);
  file.Int("attention.head_count_kv", 2).Int("attention.value_length", 16);
  file.Int("attention.key_length", 8);
  EXPECT_NE(Refusal(ParseGgufHeads(config, 32, 2)).find("attention.value_length"),
            std::string::npos);
}

TEST(GgufConfig, ReportsKeysThatNothingRead) {
  GgufTestFile file = File();
  file.Float("attention.strange", 1);
  GgufConfig config(file.checkpoint, "llama");
  ASSERT_TRUE(ParseGgufCommon(config));
  ASSERT_TRUE(config.RequireLayers());
  ASSERT_TRUE(ParseGgufHeads(config, 32, 2));
  EXPECT_EQ(config.UnreadKeys(), std::vector<std::string>{"llama.attention.strange"});
}

RopeSpec Rope(const GgufTestFile& file, const GgufRopeQuery& query = {.head_dim = 8}) {
  GgufConfig config(file.checkpoint, "llama");
  auto rope = ParseGgufRope(config, query);
  EXPECT_TRUE(rope) << rope.error().message;
  return rope ? *rope : RopeSpec{};
}

TEST(GgufRope, WithoutKeysItIsPlain) {
  const RopeSpec rope = Rope(File());
  EXPECT_EQ(rope.theta, 10000);
  EXPECT_EQ(rope.rotary_dim, 8);
  EXPECT_FALSE(rope.scaling);
}

TEST(GgufRope, AFactorWithoutATypeIsLinear) {
  GgufTestFile file = File();
  file.Float("rope.scaling.factor", 4);
  EXPECT_EQ(Rope(file).scaling, RopeScaling(LinearScaling{4}));
  EXPECT_FALSE(Rope(file, {.head_dim = 8, .scaled = false}).scaling);
  file.Float("rope.scaling.factor", 0);
  EXPECT_FALSE(Rope(file).scaling);
}

TEST(GgufRope, YarnTakesItsAttentionFactorFromTheMultiplier) {
  GgufTestFile file = File();
  file.Text("rope.scaling.type", "yarn").Float("rope.scaling.factor", 4);
  file.Int("rope.scaling.original_context_length", 32);
  auto yarn = std::get<YarnScaling>(*Rope(file).scaling);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(yarn.original_max_position_embeddings, 32);
  file.Float("rope.scaling.yarn_log_multiplier", 0.1f);
  yarn = std::get<YarnScaling>(*Rope(file, {.head_dim = 8, .deepseek_mscale = true}).scaling);
  EXPECT_EQ(yarn.attention_factor, 1);
}

TEST(GgufRope, FactorTensorsAreScalings) {
  GgufTestFile file = File();
  file.Tensor("rope_freqs.weight", {4}, 2);
  EXPECT_EQ(Rope(file).scaling, RopeScaling(FrequencyFactors{{2, 2, 2, 2}}));
  GgufTestFile other = File();
  other.Tensor("rope_factors_long.weight", {4}, 3).Tensor("rope_factors_short.weight", {4}, 2);
  const auto longrope = std::get<LongRopeScaling>(*Rope(other).scaling);
  EXPECT_EQ(longrope.long_factor, (std::vector<double>{3, 3, 3, 3}));
  EXPECT_EQ(longrope.original_max_position_embeddings, 128);
}

TEST(GgufRope, ContradictionsAreRefused) {
  GgufTestFile file = File();
  file.Tensor("rope_freqs.weight", {3}, 2);
  GgufConfig config(file.checkpoint, "llama");
  const GgufRopeQuery query{.head_dim = 8};
  EXPECT_EQ(Refusal(ParseGgufRope(config, query)),
            "model.gguf: tensor \"rope_freqs.weight\" has 3 elements, expected 4");
  file.Int("rope.dimension_count", 7);
  EXPECT_EQ(Refusal(ParseGgufRope(config, query)),
            "model.gguf: key \"llama.rope.dimension_count\" is 7, expected an even number up to "
            "the head's 8");
}

TEST(GgufRope, UnknownTypesAreRefusedWithTheKnownOnes) {
  GgufTestFile file = File();
  file.Text("rope.scaling.type", "spiral");
  GgufConfig config(file.checkpoint, "llama");
  const auto rope = ParseGgufRope(config, {.head_dim = 8});
  EXPECT_EQ(
      Refusal(rope),
      "model.gguf: key \"llama.rope.scaling.type\" is \"spiral\", expected none, linear, yarn "
      "or longrope");
  EXPECT_EQ(rope.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lockstep

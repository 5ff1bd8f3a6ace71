#include "engine/generation_config.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Result<ParsedGenerationConfig> Parse(std::string_view json) {
  return ParseGenerationConfig(Json::parse(json), "generation_config.json");
}

TEST(GenerationConfig, ReadsWhatCheckpointsShip) {
  const auto parsed =
      Parse(R"({"_from_model_config": true, "bos_token_id": 2, "cache_implementation": "hybrid",
    "do_sample": true, "eos_token_id": [1, 106], "pad_token_id": 0, "top_k": 64, "top_p": 0.95,
    "transformers_version": "4.50.0.dev0"})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->warnings.empty());
  EXPECT_EQ(parsed->config.eos_token_id, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(parsed->config.top_k, 64);
  EXPECT_EQ(parsed->config.ToJson().dump(),
            R"({"do_sample":true,"eos_token_id":[1,106],"top_k":64,"top_p":0.95})");
}

TEST(GenerationConfig, SamplingWithoutTopKMeansFifty) {
  EXPECT_EQ(Parse(R"({"do_sample": true})")->config.top_k, 50);
  EXPECT_EQ(Parse(R"({"do_sample": true, "top_k": 0})")->config.top_k, 0);
  EXPECT_EQ(Parse(R"({})")->config.top_k, std::nullopt);
}

TEST(GenerationConfig, EveryValueInForceSurvivesPrinting) {
  const std::string text =
      R"({"do_sample":true,"eos_token_id":[3],"max_new_tokens":9,"stop_strings":["x"],"temperature":0.5,)"
      R"("top_k":7,"min_p":0.1,"seed":18446744073709551615,"sequence_bias":[[[1,2],-1.5]],)"
      R"("logit_bias":{"5":"-inf"},"repetition_penalty":1.25,"no_repeat_ngram_size":3,)"
      R"("bad_words_ids":[[4]],"min_new_tokens":2,"exponential_decay_length_penalty":[3,1.5],)"
      R"("suppress_tokens":[8]})";
  const auto parsed = Parse(text);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->config.ToJson().dump(), text);
}

TEST(GenerationConfig, GreedySwitchesEverythingOffButTheEnds) {
  const auto parsed = Parse(
      R"({"do_sample": true, "temperature": 0.1, "repetition_penalty": 1.3, "min_new_tokens": 5,
          "suppress_tokens": [1], "logit_bias": {"2": 3}, "eos_token_id": 7, "max_new_tokens": 4})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->config.Greedy().ToJson().dump(),
            R"({"do_sample":false,"eos_token_id":[7],"max_new_tokens":4})");
}

TEST(GenerationConfig, KeysThatWouldChangeTheResultAreNamed) {
  const auto parsed = Parse(
      R"({"num_beams": 4, "guidance_scale": 1.5, "penalty_alpha": 0.6, "num_beam_groups": 1, "diversity_penalty": 0.0})");
  ASSERT_TRUE(parsed);
  ASSERT_EQ(parsed->warnings.size(), 3u);
  EXPECT_NE(parsed->warnings[0].find("\"num_beams\""), std::string::npos);
}

TEST(GenerationConfig, WrongValuesEndInASentence) {
  for (const std::string_view text : {R"([])",
                                      R"({"temperature": "hot"})",
                                      R"({"do_sample": true, "temperature": 0})",
                                      R"({"top_p": 1.5})",
                                      R"({"top_p": -0.1})",
                                      R"({"top_k": -1})",
                                      R"({"top_k": 1.5})",
                                      R"({"eos_token_id": "x"})",
                                      R"({"eos_token_id": [1, -2]})",
                                      R"({"eos_token_id": 99999999999})",
                                      R"({"repetition_penalty": 0})",
                                      R"({"logit_bias": {"a": 1}})",
                                      R"({"logit_bias": {"1": "x"}})",
                                      R"({"bad_words_ids": [[]]})",
                                      R"({"sequence_bias": [[1, 2]]})",
                                      R"({"min_p": 2})",
                                      R"({"do_sample": 1})",
                                      R"({"exponential_decay_length_penalty": [1]})",
                                      R"({"stop_strings": [""]})",
                                      R"({"seed": 1.5})",
                                      R"({"max_new_tokens": -1})"}) {
    const auto parsed = Parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message.rfind("generation_config.json: ", 0), 0u)
        << parsed.error().message;
  }
}

TEST(GenerationConfig, TokensOutsideTheVocabularyAreRefused) {
  const auto config = Parse(R"({"suppress_tokens": [100]})")->config;
  EXPECT_TRUE(ValidateGenerationConfig(config, "flags", 101));
  EXPECT_FALSE(ValidateGenerationConfig(config, "flags", 100));
}

}  // namespace
}  // namespace lockstep

// The ways back from configurations to facts and from facts to configurations.
#include "arch/gguf_facts.h"

#include <gtest/gtest.h>

#include "arch/arch_testing.h"
#include "arch/hf_facts.h"
#include "arch/spec_facts.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {

TEST(HfFacts, EveryGoldenConfigurationIsStatedAgain) {
  size_t models = 0;
  for (const auto& path : GoldenModels()) {
    const auto text = ReadTextFile(path / "config.json");
    ASSERT_TRUE(text);
    const auto built = BuildFrom(std::string_view(*text));
    ASSERT_TRUE(built) << built.error().message;
    const HfArchitecture* row = FindHfArchitecture(built->spec.architecture);
    const auto config = StateInHf(built->spec, *row, 0, "model");
    ASSERT_TRUE(config) << path << ": " << config.error().message;
    EXPECT_EQ(config->value("architectures", Json()), Json::array({row->class_name}));
    const auto again = BuildFrom(*config);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->unread, std::vector<std::string>()) << path;
    EXPECT_EQ(FactsThatDiffer(built->spec, again->spec), std::vector<std::string>()) << path;
    ++models;
  }
  EXPECT_GE(models, 30u);
}

TEST(HfFacts, AFactThatTheModelTypeDoesNotHaveIsNamed) {
  ModelSpec spec = SpecOf(
      R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64})");
  std::get<AttentionSpec>(spec.layers[1].mixer).logit_softcap = 30;
  const auto config = StateInHf(spec, *FindHfArchitecture("llama"), 0, "model");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("layers[1].mixer.logit_softcap: 30 → none"),
            std::string::npos)
      << config.error().message;
}

TEST(HfFacts, EveryRowNamesAGgufArchitectureThatIsKnown) {
  for (const std::string& model_type : KnownHfArchitectures()) {
    const HfArchitecture* row = FindHfArchitecture(model_type);
    EXPECT_FALSE(row->class_name.empty()) << model_type;
    if (row->gguf.empty()) continue;
    EXPECT_NE(FindGgufArchitecture(row->gguf), nullptr) << model_type;
  }
  // And every GGUF architecture has a way back.
  for (const std::string& gguf : KnownGgufArchitectures())
    EXPECT_FALSE(HfArchitecturesOf(gguf).empty()) << gguf;
}

TEST(SpecFacts, Llama3BandsAreFoundAgainFromTheirFactors) {
  struct Case {
    Llama3Scaling scaling;
    double theta;
    int64_t rotary_dim, stated_original;
  };
  const Case kCases[] = {
      {{8, 1, 4, 8192}, 500000, 128, 0},     // Llama 3.1
      {{32, 1, 4, 8192}, 500000, 64, 0},     // Llama 3.2
      {{8, 2, 6, 4096}, 500000, 128, 4096},  // others, with the length stated
      {{16, 1, 3, 16384}, 1000000, 128, 0},  // and without: low_freq_factor is 1
  };
  for (const Case& one : kCases) {
    const auto factors = Llama3Factors(one.scaling, one.theta, one.rotary_dim);
    const auto found =
        FitLlama3({factors.begin(), factors.end()}, one.theta, one.rotary_dim, one.stated_original);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->factor, one.scaling.factor);
    EXPECT_EQ(found->low_freq_factor, one.scaling.low_freq_factor);
    EXPECT_EQ(found->high_freq_factor, one.scaling.high_freq_factor);
    EXPECT_EQ(found->original_max_position_embeddings,
              one.scaling.original_max_position_embeddings);
  }
}

TEST(SpecFacts, FactorsOfNoBandsAreNoLlama3) {
  std::vector<double> factors(64, 1);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = 1 + 0.1 * static_cast<double>(i);
  EXPECT_FALSE(FitLlama3(factors, 10000, 128, 0));
  EXPECT_FALSE(FitLlama3({}, 10000, 128, 0));
}

TEST(GgufFacts, AFactThatTheArchitectureDoesNotHaveIsNamed) {
  ModelSpec spec = SpecOf(
      R"({"model_type": "mistral", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
          "sliding_window": 8, "max_position_embeddings": 64})");
  const std::vector<TensorInfo> weights = {
      {.name = "output.weight", .shape = {32, 16}, .type = FindTensorType("F32")},
      {.name = "token_embd.weight", .shape = {32, 16}, .type = FindTensorType("F32")}};
  const auto facts = StateInGguf(spec, *FindGgufArchitecture("llama"), weights, "model");
  ASSERT_FALSE(facts);
  EXPECT_NE(facts.error().message.find("layers[0,1].mixer.sliding_window: 8 → none"),
            std::string::npos)
      << facts.error().message;
}

}  // namespace
}  // namespace lockstep

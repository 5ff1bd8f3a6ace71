#include "arch/hf_config.h"

#include <cmath>

#include "arch/arch_testing.h"
#include "base/mapped_file.h"
#include "spec/validate.h"

namespace lockstep {
namespace {

constexpr std::string_view kLlama = R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 64,
    "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256)";

// A Llama with one more key (which may take the place of an earlier one).
std::string Llama(std::string_view key, std::string_view value) {
  Json json = *ParseJson(std::string(kLlama) + "}", "config.json");
  json[std::string(key)] = *ParseJson(value, "value");
  return json.dump();
}

TEST(HfConfig, EveryGoldenConfigurationBuildsAValidSpecAndIsWhollyRead) {
  const auto models = GoldenModels();
  ASSERT_FALSE(models.empty());
  for (const auto& model : models) {
    const auto text = ReadTextFile(model / "config.json");
    ASSERT_TRUE(text) << text.error().message;
    const auto built = BuildFrom(std::string_view(*text));
    ASSERT_TRUE(built) << model << ": " << built.error().message;
    EXPECT_EQ(built->unread, std::vector<std::string>()) << model;
    const Status valid = Validate(built->spec);
    EXPECT_TRUE(valid) << model << ": " << (valid ? "" : valid.error().message);
  }
}

TEST(HfConfig, AnUnreadKeyIsReportedByName) {
  const auto built = BuildFrom(std::string_view(Llama("attention_temperature", "0.5")));
  ASSERT_TRUE(built);
  EXPECT_EQ(built->unread, std::vector<std::string>{"attention_temperature"});
}

TEST(HfConfig, KeysThatChangeNoNumberAreNotReported) {
  for (const char* key : {"_name_or_path", "attention_dropout", "transformers_version", "top_k",
                          "unsloth_fixed", "use_cache", "pretraining_tp"}) {
    const auto built = BuildFrom(std::string_view(Llama(key, "1")));
    ASSERT_TRUE(built);
    EXPECT_EQ(built->unread, std::vector<std::string>()) << key;
  }
}

TEST(HfConfig, HostileValuesAreErrorsThatNameKeyExpectedAndFound) {
  struct Case {
    const char* key;
    const char* value;
    const char* message;
  };
  for (const Case& c : {
           Case{"num_hidden_layers", "1000000000",
                "config.json: \"num_hidden_layers\" is 1000000000, expected 1 to 4096 layers"},
           Case{"num_hidden_layers", "0", "\"num_hidden_layers\" is 0"},
           Case{"hidden_size", "-64", "\"hidden_size\" is -64, expected a size from 1"},
           Case{"hidden_size", "1e3", "\"hidden_size\" is 1000.0, expected an integer"},
           Case{"hidden_size", "99999999999999999999", "\"hidden_size\" is"},
           Case{"hidden_size", "null", "\"hidden_size\" is missing"},
           Case{"vocab_size", "\"320\"", "\"vocab_size\" is \"320\", expected an integer"},
           Case{"num_attention_heads", "6",
                "\"num_attention_heads\" is 6, expected a divisor of hidden_size 64"},
           Case{"num_key_value_heads", "3", "\"num_key_value_heads\" is 3, expected a divisor"},
           Case{"num_key_value_heads", "0", "\"num_key_value_heads\" is 0"},
           Case{"head_dim", "15", "RoPE turns 15 of the 15 elements of a head"},
           Case{"head_dim", "16777216", "expected at most 1 (heads times head_dim 16777216)"},
           Case{"rms_norm_eps", "0", "\"rms_norm_eps\" is 0, expected a number above 0"},
           Case{"rms_norm_eps", "[1]", "\"rms_norm_eps\" is [1], expected a number"},
           Case{"hidden_act", "\"xielu\"", "\"hidden_act\" is \"xielu\", expected one of gelu"},
           Case{"tie_word_embeddings", "1", "\"tie_word_embeddings\" is 1, expected true or false"},
           Case{"eos_token_id", "[1, \"2\"]", "\"eos_token_id\" is [1,\"2\"]"},
           Case{"rope_theta", "-1", "\"rope_theta\" is -1, expected a number above 0"},
           Case{"rope_scaling", "7", "\"rope_scaling\" is 7, expected an object"},
           Case{"rope_scaling", R"({"rope_type": "magic"})", "the rope_type is \"magic\""},
           Case{"rope_scaling", R"({"rope_type": "linear"})", "\"factor\" is missing"},
           Case{"rope_scaling", R"({"rope_type": "linear", "factor": 2, "speed": 1})",
                "\"speed\" is not a key of RoPE"},
           Case{"rope_scaling",
                R"({"rope_type": "longrope", "short_factor": [1], "long_factor": []})",
                "\"short_factor\" has 1 numbers, expected 8"},
           Case{"max_position_embeddings", "0", "\"max_position_embeddings\" is 0"},
       }) {
    const std::string message = ErrorOf(Llama(c.key, c.value));
    EXPECT_NE(message.find(c.message), std::string::npos) << c.key << ": " << message;
  }
}

TEST(HfConfig, MinusOneIsNoToken) {
  const ModelSpec spec = SpecOf(Llama("pad_token_id", "-1"));
  EXPECT_EQ(spec.tokens.pad, std::nullopt);
  EXPECT_EQ(spec.tokens.bos, 1);  // LlamaConfig's default
}

// --- RoPE: the same facts in every layout ---

const RopeSpec& RopeOf(const ModelSpec& spec) { return *Attention(spec).rope; }

TEST(Rope, OldAndNewLayoutsGiveTheSameSpec) {
  const ModelSpec old_layout = SpecOf(std::string(kLlama) + R"(, "rope_theta": 500000.0,
      "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 32, "rope_type": "llama3"}})");
  const ModelSpec new_layout = SpecOf(std::string(kLlama) + R"(, "rope_parameters": {
      "rope_theta": 500000.0, "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
      "original_max_position_embeddings": 32, "rope_type": "llama3"}})");
  for (const ModelSpec* spec : {&old_layout, &new_layout}) {
    EXPECT_EQ(RopeOf(*spec).theta, 500000);
    EXPECT_EQ(RopeOf(*spec).rotary_dim, 16);
    const auto& scaling = std::get<Llama3Scaling>(*RopeOf(*spec).scaling);
    EXPECT_EQ(scaling.factor, 8);
    EXPECT_EQ(scaling.low_freq_factor, 1);
    EXPECT_EQ(scaling.high_freq_factor, 4);
    EXPECT_EQ(scaling.original_max_position_embeddings, 32);
  }
}

TEST(Rope, TypeIsAnOlderWordForRopeType) {
  const ModelSpec spec = SpecOf(Llama("rope_scaling", R"({"type": "linear", "factor": 4})"));
  EXPECT_EQ(std::get<LinearScaling>(*RopeOf(spec).scaling).factor, 4);
}

TEST(Rope, DynamicGrowsFromMaxPositionEmbeddings) {
  const ModelSpec spec =
      SpecOf(Llama("rope_scaling",
                   R"({"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8})"));
  EXPECT_EQ(std::get<DynamicScaling>(*RopeOf(spec).scaling).original_max_position_embeddings, 256);
}

TEST(Rope, YarnsAttentionFactorIsTheNumberTransformersComputes) {
  const auto factor = [](std::string_view more) {
    const ModelSpec spec =
        SpecOf(Llama("rope_scaling", R"({"type": "yarn", "factor": 40.0, "beta_fast": 0,
            "original_max_position_embeddings": 4096)" +
                                         std::string(more) + "}"));
    EXPECT_EQ(std::get<YarnScaling>(*RopeOf(spec).scaling).beta_fast, 32);
    return std::get<YarnScaling>(*RopeOf(spec).scaling).attention_factor;
  };
  EXPECT_DOUBLE_EQ(factor(""), 0.1 * std::log(40.0) + 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "attention_factor": 0.7)"), 0.7);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 1.0, "mscale_all_dim": 1.0)"), 1);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 0.707, "mscale_all_dim": 0.5)"),
                   (0.0707 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1));
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 0.707)"), 0.1 * std::log(40.0) + 1);
}

TEST(Rope, LlamaTurnsWholeHeadsWhateverPartialRotaryFactorSays) {
  const ModelSpec spec = SpecOf(Llama("partial_rotary_factor", "0.5"));
  EXPECT_EQ(RopeOf(spec).rotary_dim, 16);
}

TEST(Rope, AnEmptyRopeScalingCountsAsNone) {
  EXPECT_EQ(RopeOf(SpecOf(Llama("rope_scaling", "{}"))).scaling, std::nullopt);
}

// One rule for all families: none reads codes and scales of another tool.
TEST(HfConfig, AQuantizedCheckpointIsRefusedWhateverItsFamily) {
  int families = 0;
  for (const auto& model : GoldenModels()) {
    auto json = ParseJson(ReadTextFile(model / "config.json").value(), "config.json");
    ASSERT_TRUE(json);
    ASSERT_TRUE(BuildFrom(*json)) << model;
    for (const char* method : {"fp8", "gptq", "awq", "bitsandbytes", "mxfp4"}) {
      (*json)["quantization_config"] = {{"quant_method", method}};
      const auto built = BuildFrom(*json);
      ASSERT_FALSE(built) << model;
      EXPECT_EQ(built.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(built.error().message.find(fmt::format("quant_method \"{}\"", method)),
                std::string::npos)
          << built.error().message;
      EXPECT_NE(built.error().message.find("GGUF"), std::string::npos);
    }
    (*json)["quantization_config"] = nullptr;
    EXPECT_TRUE(BuildFrom(*json)) << model;
    ++families;
  }
  EXPECT_GT(families, 20);
}

TEST(HfConfig, AQuantizationOfTheTextModelAloneIsRefusedToo) {
  Json json = {{"model_type", "llama"}, {"text_config", {{"quantization_config", Json::object()}}}};
  const auto built = BuildFrom(json);
  ASSERT_FALSE(built);
  EXPECT_NE(
      built.error().message.find("text_config: \"quantization_config\" states no quant_method"),
      std::string::npos)
      << built.error().message;
}

}  // namespace
}  // namespace lockstep

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/generation_options.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/weight_scan.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

TEST(ParseIds, TakesListsAsPeopleWriteThem) {
  const std::vector<int32_t> expected = {1, 2, 30};
  for (const char* text : {"1,2,30", "1 2 30", "[1, 2, 30]", " 1,\n2,30 \n"})
    EXPECT_EQ(*ParseIds(text, "ids"), expected) << text;
  for (const char* bad : {"", "[]", "1,x", "-1", "1.5", "99999999999", "1,,2", ",1", "1,", "1, ,2",
                          ",", "[1,]", "[,1]", "1[2", "[1", "1]"})
    EXPECT_FALSE(ParseIds(bad, "ids")) << bad;
}

TEST(WholeNumbers, EveryItemIsOneAndNoneIsEmpty) {
  const CLI::Validator check = WholeNumbers(1, 100);
  for (std::string good : {"1", "1,2,100"}) EXPECT_EQ(check(good), "") << good;
  for (std::string bad : {"", "1,,2", ",1", "1,", "0", "1,101", "1, 2", "x"})
    EXPECT_NE(check(bad), "") << bad;
  EXPECT_EQ(NumbersIn({"1,20", "3"}), (std::vector<int64_t>{1, 20, 3}));
}

TEST(ReadPrompts, TakesLinesAndJsonLists) {
  const fs::path path = fs::temp_directory_path() / fmt::format("prompts-{}", getpid());
  const auto read = [&](const char* text) {
    std::ofstream(path) << text;
    return ReadPrompts(path);
  };
  const auto lines = read("one\r\n\ntwo\n");
  ASSERT_TRUE(lines);
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].text, "one");
  EXPECT_EQ((*lines)[1].name, "prompt 2");
  const auto list = read(R"(["one", {"name": "b", "text": "two\nlines"}])");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ((*list)[1].name, "b");
  EXPECT_EQ((*list)[1].text, "two\nlines");
  for (const char* bad : {"", "\n", "[1]", "[", "\xff\n"}) EXPECT_FALSE(read(bad)) << bad;
  fs::remove(path);
}

TEST(Table, AlignsWhatIsWideOrNotAscii) {
  using enum Table::Align;
  Table table({"name", "|Δ|"}, {kLeft, kRight});
  table.Add({"文", "1"});
  table.Add({"abc", "20"});
  EXPECT_EQ(table.Text(),
            "name  |Δ|\n"
            "文      1\n"
            "abc    20\n");
}

TEST(Numbers, AreWrittenAsPeopleDo) {
  EXPECT_EQ(WithCommas(124439808), "124,439,808");
  EXPECT_EQ(WithCommas(-1000), "-1,000");
  EXPECT_EQ(WithCommas(7), "7");
  EXPECT_EQ(HumanBytes(999), "999 B");
  EXPECT_EQ(HumanBytes(98.5 * 1024 * 1024), "98.5 MiB");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanSeconds(125), "2 min 05 s");
}

TEST(ScanWeights, FindsWhatNoModelHas) {
  std::vector<float> values(100'000, 0.5f);
  values[70'000] = std::numeric_limits<float>::quiet_NaN();
  values[99'999] = -std::numeric_limits<float>::infinity();
  values[3] = -2;
  const std::vector<float> zeros(10, 0.0f);
  const std::vector<TensorInfo> tensors = {
      {"w", {100'000}, FindTensorType("F32"), std::as_bytes(std::span(values))},
      {"z", {10}, FindTensorType("F32"), std::as_bytes(std::span(zeros))}};
  ThreadPool pool(2);
  const auto scan = ScanWeights(tensors, pool, [](double) { return true; });
  EXPECT_EQ(scan[0].nan, 1);
  EXPECT_EQ(scan[0].infinite, 1);
  EXPECT_EQ(scan[0].finite, 99'998);
  EXPECT_EQ(scan[0].lowest, -2);
  EXPECT_EQ(scan[0].highest, 0.5f);
  EXPECT_TRUE(scan[0].damaged());
  EXPECT_FALSE(scan[1].damaged());
  EXPECT_EQ(scan[1].sum_of_squares, 0);
}

// What the flags make of a checkpoint's own settings.
class InForce : public testing::Test {
 protected:
  Result<GenerationConfig> With(const std::vector<std::string>& flags) {
    CLI::App app;
    GenerationOptions options;
    options.AddTo(app);
    app.parse(std::vector<std::string>(flags.rbegin(), flags.rend()));
    LS_TRY(ParsedGenerationConfig parsed, options.InForce(model_));
    return parsed.config;
  }
  void SetUp() override {
    model_.spec.embedding.vocab_size = 100;
    model_.spec.tokens.eos = {7};
    model_.checkpoint.generation_config = {
        {"do_sample", true}, {"temperature", 0.6}, {"repetition_penalty", 1.1}};
  }
  Model model_;
};

TEST_F(InForce, TheFileHoldsUnlessAFlagSaysOtherwise) {
  const auto plain = With({});
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_TRUE(plain->do_sample);
  EXPECT_EQ(plain->temperature, 0.6);
  EXPECT_EQ(plain->top_k, 50);
  EXPECT_EQ(plain->eos_token_id, std::vector<int32_t>{7});
  EXPECT_EQ(plain->max_new_tokens, kDefaultMaxNewTokens);
  EXPECT_TRUE(plain->seed);
  const auto hot = With({"--temperature", "1.5", "--seed", "3", "-n", "9"});
  ASSERT_TRUE(hot);
  EXPECT_EQ(hot->temperature, 1.5);
  EXPECT_EQ(hot->seed, 3u);
  EXPECT_EQ(hot->max_new_tokens, 9);
  EXPECT_EQ(hot->repetition_penalty, 1.1);
}

TEST_F(InForce, TemperatureZeroIsGreedyAndKeepsThePenalties) {
  const auto config = With({"--temperature", "0"});
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->do_sample);
  EXPECT_EQ(config->repetition_penalty, 1.1);
}

TEST_F(InForce, GreedyLeavesOnlyTheEnds) {
  const auto config = With({"--greedy"});
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->do_sample);
  EXPECT_FALSE(config->repetition_penalty);
  EXPECT_EQ(config->eos_token_id, std::vector<int32_t>{7});
}

TEST_F(InForce, ASamplingFlagSamples) {
  model_.checkpoint.generation_config = Json();
  EXPECT_FALSE(With({})->do_sample);
  EXPECT_TRUE(With({"--top-p", "0.9"})->do_sample);
  EXPECT_TRUE(With({"--sample"})->do_sample);
  EXPECT_FALSE(With({"--repetition-penalty", "1.2"})->do_sample);
}

TEST_F(InForce, NumbersAreTakenAsPeopleWriteThem) {
  const auto config = With({"--temperature", ".7", "--top-k", "007", "--top-p", "1e-1"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->top_k, 7);
  EXPECT_EQ(config->top_p, 0.1);
  EXPECT_FALSE(With({"--temperature", "0.0"})->do_sample);
}

TEST_F(InForce, AFlagAtFaultIsWrongUsageAndNamed) {
  const auto bias = With({"--logit-bias", "99999=1"});
  ASSERT_FALSE(bias);
  EXPECT_EQ(bias.error().code, ErrorCode::kUsage);
  EXPECT_TRUE(bias.error().message.starts_with("--logit-bias 99999=1")) << bias.error().message;
  // The file's own fault is the file's.
  model_.checkpoint.generation_config["temperature"] = -1;
  const auto file = With({"--top-k", "3"});
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().code, ErrorCode::kUsage);
  EXPECT_TRUE(With({"--temperature", "1"}));
}

TEST_F(InForce, BiasesAndStopsAreTaken) {
  const auto config =
      With({"--logit-bias", "4=-inf", "--logit-bias", "5=2.5", "--stop", "a", "--stop", "b"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->logit_bias.size(), 2u);
  EXPECT_EQ(config->stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(With({"--logit-bias", "4"}));
  EXPECT_FALSE(With({"--logit-bias", "100=1"}));  // outside the vocabulary
  EXPECT_FALSE(With({"--stop", ""}));
}

}  // namespace
}  // namespace lockstep

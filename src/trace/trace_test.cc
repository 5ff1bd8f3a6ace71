#include "trace/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class TraceFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              fmt::format("lockstep-{}-{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path path(const std::string& name = "run.safetensors") const { return folder_ / name; }
  void WriteJson(const std::string& text) const { std::ofstream(path("run.json")) << text; }

  fs::path folder_;
};

TraceTensor Floats(std::vector<int64_t> shape, float first) {
  TraceTensor tensor{std::move(shape), std::vector<float>{}};
  auto& values = std::get<std::vector<float>>(tensor.values);
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(first + static_cast<float>(i));
  return tensor;
}

PromptTrace WholePrompt() {
  PromptTrace prompt{.name = "plain", .text = "hi", .rendered = "<s>hi"};
  prompt.ids = {1, 2};
  prompt.logits = Floats({2, 4}, 0.5f);
  prompt.steps[0] = Floats({4}, 4.5f);
  prompt.steps[1] = Floats({4}, -1);
  prompt.greedy = {3, 3};
  prompt.greedy_text = "yes";
  prompt.noise = 2.5e-6;
  prompt.min_top2_gap = 1;
  prompt.hidden = Floats({3, 2, 5}, 7);
  prompt.taps["layers.1.q_rope"] = Floats({2, 6}, 9);
  return prompt;
}

void ExpectEqual(const PromptTrace& a, const PromptTrace& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.rendered, b.rendered);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.greedy, b.greedy);
  EXPECT_EQ(a.greedy_text, b.greedy_text);
  EXPECT_EQ(a.noise, b.noise);
  EXPECT_EQ(a.min_top2_gap, b.min_top2_gap);
  const auto same = [](const std::optional<TraceTensor>& x, const std::optional<TraceTensor>& y) {
    ASSERT_EQ(x.has_value(), y.has_value());
    if (!x) return;
    EXPECT_EQ(x->shape, y->shape);
    EXPECT_EQ(x->values, y->values);
  };
  same(a.logits, b.logits);
  same(a.hidden, b.hidden);
  same(a.hidden_last, b.hidden_last);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (const auto& [k, row] : a.steps) same(row, b.steps.at(k));
  ASSERT_EQ(a.taps.size(), b.taps.size());
  for (const auto& [tap, tensor] : a.taps) same(tensor, b.taps.at(tap));
}

TEST_F(TraceFile, ReadsBackWhatWasWritten) {
  Trace trace;
  trace.metadata = {{"model", "tiny"}};
  trace.prompts.push_back(WholePrompt());
  // The other form: chosen steps, in fp64.
  PromptTrace chosen{.name = "chosen"};
  chosen.ids = {3};
  chosen.greedy = {0, 1, 2};
  chosen.steps[0] = TraceTensor{{4}, std::vector<double>{1.0 / 3, 0, 1, 2}};
  chosen.steps[2] = Floats({4}, 1);
  chosen.hidden_last = Floats({3, 5}, 1);
  trace.prompts.push_back(chosen);
  ASSERT_TRUE(WriteTrace(path(), trace));
  const auto read = ReadTrace(path());
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->prompts.size(), 2u);
  EXPECT_EQ(read->metadata.at("model"), "tiny");
  for (size_t i = 0; i < 2; ++i) ExpectEqual(read->prompts[i], trace.prompts[i]);
  EXPECT_TRUE(IsTrace(path()));
}

TEST_F(TraceFile, NeedsNoJsonWhenTensorsHoldTheIds) {
  Trace trace;
  trace.prompts.push_back(WholePrompt());
  ASSERT_TRUE(WriteTrace(path(), trace));
  fs::remove(path("run.json"));
  const auto read = ReadTrace(path());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->prompts[0].ids, trace.prompts[0].ids);
  EXPECT_FALSE(read->prompts[0].noise);
}

TEST_F(TraceFile, RefusesWhatContradictsItself) {
  const auto expect_refusal = [&](const std::string& what, auto edit) {
    Trace trace;
    trace.prompts.push_back(WholePrompt());
    edit(trace.prompts[0]);
    ASSERT_TRUE(WriteTrace(path(), trace));
    const auto read = ReadTrace(path());
    ASSERT_FALSE(read) << what;
    EXPECT_NE(read.error().message.find(what), std::string::npos) << read.error().message;
  };
  expect_refusal("outside the 4 columns", [](PromptTrace& p) { p.ids[1] = 4; });
  expect_refusal("outside the 4 columns", [](PromptTrace& p) { p.greedy[0] = 9; });
  expect_refusal("for a prompt of 3 ids", [](PromptTrace& p) { p.ids.push_back(1); });
  expect_refusal("greedy ids that lead to it", [](PromptTrace& p) { p.greedy.clear(); });
  expect_refusal("beside others", [](PromptTrace& p) {
    for (auto& [k, row] : p.steps) row = Floats({5}, 0);
  });
  expect_refusal("layers.1.q_rope", [](PromptTrace& p) {
    p.taps["layers.1.q_rope"] = Floats({3, 6}, 0);
  });
}

// Two tensors under the names given, [1, 4] and [4] or as told, and ids.
TEST_F(TraceFile, RefusesWhatIsThereTwice) {
  const std::vector<float> row(4);
  const std::vector<int64_t> ids = {1}, ids_shape = {1}, matrix = {1, 4}, vector = {4};
  const auto expect = [&](const char* a, const char* b, const char* what) {
    const auto shape = [&](std::string_view name) -> const std::vector<int64_t>& {
      return name.find("step") != std::string_view::npos ? vector : matrix;
    };
    const auto bytes = std::as_bytes(std::span(row));
    const std::vector<TensorToWrite> tensors = {
        {"p0.input_ids", FindTensorType("I64"), ids_shape, std::as_bytes(std::span(ids))},
        {a, FindTensorType("F32"), shape(a), bytes},
        {b, FindTensorType("F32"), shape(b), bytes}};
    ASSERT_TRUE(WriteSafetensors(path(), tensors));
    const auto read = ReadTrace(path());
    ASSERT_FALSE(read) << a << b;
    EXPECT_NE(read.error().message.find(what), std::string::npos) << read.error().message;
  };
  expect("logits", "p0.logits", "\"p0.logits\" are both");
  expect("p0.greedy_logits", "greedy_logits", "are both");
  expect("p0.greedy_logits", "p0.logits.step0", "step 0 are there twice");
}

TEST_F(TraceFile, TheVocabularyIsThatOfTheFirstPromptWithLogits) {
  Trace trace;
  trace.prompts = {WholePrompt(), WholePrompt()};
  trace.prompts[0].logits.reset();
  trace.prompts[0].steps.clear();
  ASSERT_TRUE(WriteTrace(path(), trace));
  EXPECT_TRUE(ReadTrace(path())) << ReadTrace(path()).error().message;
  trace.prompts[0].ids[0] = 4;
  ASSERT_TRUE(WriteTrace(path(), trace));
  const auto read = ReadTrace(path());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("outside the 4 columns"), std::string::npos);
}

TEST_F(TraceFile, RefusesIdsThatDifferBetweenItsTwoFiles) {
  Trace trace;
  trace.prompts.push_back(WholePrompt());
  ASSERT_TRUE(WriteTrace(path(), trace));
  WriteJson(R"({"prompts": [{"ids": [1, 3]}]})");
  const auto read = ReadTrace(path());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("two runs mixed?"), std::string::npos);
  for (const char* bad : {R"({"prompts": [{"ids": [1, "2"]}]})", R"({"prompts": [{"ids": 7}]})",
                          R"({"prompts": [{"noise": -1}]})", R"({"prompts": [3]})", "{"}) {
    WriteJson(bad);
    EXPECT_FALSE(ReadTrace(path())) << bad;
  }
}

TEST_F(TraceFile, WeightsAreNoTrace) {
  const std::vector<float> values(4);
  const std::vector<int64_t> shape = {4};
  const TensorToWrite weight{"model.norm.weight", FindTensorType("F32"), shape,
                             std::as_bytes(std::span(values))};
  ASSERT_TRUE(WriteSafetensors(path(), std::span(&weight, 1)));
  EXPECT_FALSE(IsTrace(path()));
  const auto read = ReadTrace(path());
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("name their folder"), std::string::npos);
}

// The example of docs/formats/trace.md, taken from the page itself.
TEST_F(TraceFile, TheDocumentedExampleReads) {
  const auto page = ReadTextFile(fs::path(LOCKSTEP_SOURCE_DIR) / "docs/formats/trace.md");
  ASSERT_TRUE(page);
  const auto block = [&](const std::string& kind) {
    const size_t begin = page->find("```" + kind + "\n") + kind.size() + 4;
    return page->substr(begin, page->find("```", begin) - begin);
  };
  std::ofstream out(path(), std::ios::binary);
  std::istringstream lines(block("hex"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream bytes(line.substr(4, line.find('|') - 4));
    for (int byte; bytes >> std::hex >> byte;) out.put(static_cast<char>(byte));
  }
  out.close();
  WriteJson(block("json"));
  const auto read = ReadTrace(path());
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->prompts.size(), 1u);
  const PromptTrace& prompt = read->prompts[0];
  EXPECT_EQ(prompt.name, "tiny");
  EXPECT_EQ(prompt.ids, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(prompt.StepLogits(0), (std::vector<double>{-0.5, 2, 0.25}));
  EXPECT_EQ(prompt.noise, 1e-6);
}

}  // namespace
}  // namespace lockstep

#include "measure/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/mapped_file.h"
#include "model/model.h"
#include "tokenizer/gpt2_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// With fp32 activations the engine's logits are within this of the reference's
// (docs/numerics.md); a log-probability moves by at most twice what a logit does.
constexpr double kExactBound = 2e-4;

// Gives every id the logits of a formula; remembers what it was asked.
class FakeLogits : public LogitsSource {
 public:
  using Formula = std::function<float(int64_t position, int32_t input, int64_t id)>;
  FakeLogits(int64_t vocab_size, Formula formula)
      : vocab_size_(vocab_size), formula_(std::move(formula)) {}

  int64_t vocab_size() const override { return vocab_size_; }
  std::string Name() const override { return "fake"; }
  bool one_call() const override { return false; }
  std::optional<int64_t> limit() const override { return std::nullopt; }
  void Reset() override { read_.emplace_back(); }
  Result<MatrixView<const float>> Append(std::span<const int32_t> ids, bool wanted) override {
    rows_.clear();
    for (const int32_t id : ids) {
      const auto position = static_cast<int64_t>(read_.back().size());
      read_.back().push_back(id);
      for (int64_t v = 0; wanted && v < vocab_size_; ++v)
        rows_.push_back(formula_(position, id, v));
    }
    return MatrixView<const float>(rows_.data(), wanted ? ids.size() : 0,
                                   static_cast<size_t>(vocab_size_));
  }
  const std::vector<std::vector<int32_t>>& read() const { return read_; }

 private:
  int64_t vocab_size_;
  Formula formula_;
  std::vector<float> rows_;
  std::vector<std::vector<int32_t>> read_;
};

TextIds SomeText(int64_t n, int64_t vocab_size) {
  TextIds text;
  for (int64_t i = 0; i < n; ++i)
    text.ids.push_back(static_cast<int32_t>((i * 7919 + 3) % vocab_size));
  text.bytes_before.resize(static_cast<size_t>(n) + 1);
  std::iota(text.bytes_before.begin(), text.bytes_before.end(), 0);
  return text;
}

TextScore Score(LogitsSource& model, LogitsSource* against, const TextIds& text, int64_t context,
                int64_t stride = 0) {
  ThreadPool pool(2);
  const auto windows = CutIntoWindows(static_cast<int64_t>(text.ids.size()), context, stride);
  EXPECT_TRUE(windows) << windows.error().message;
  auto score = ScoreText(model, against, text, *windows, pool);
  EXPECT_TRUE(score) << score.error().message;
  return *std::move(score);
}

TEST(Perplexity, OfUniformLogitsIsTheVocabularySize) {
  for (const float logit : {0.0f, -80.0f, 3e30f}) {
    FakeLogits uniform(1000, [=](int64_t, int32_t, int64_t) { return logit; });
    const TextScore score = Score(uniform, nullptr, SomeText(300, 1000), 100);
    EXPECT_NEAR(score.model.perplexity(), 1000, 1e-9 * 1000) << logit;
    EXPECT_NEAR(score.model.loss.error, 0, 1e-12);
    // An id is one byte here.
    EXPECT_NEAR(score.model.bits_per_byte, std::log2(1000), 1e-9);
  }
}

// The id that follows `id` in SomeText of 1000.
int64_t Next(int32_t id) { return (id + 7919) % 1000; }

TEST(Perplexity, EachIdIsForetoldByTheOneBeforeIt) {
  // e^2 times as likely as each of the 999 others.
  FakeLogits knows(
      1000, [](int64_t, int32_t input, int64_t id) { return id == Next(input) ? 2.0f : 0.0f; });
  const double expected = (std::exp(2.0) + 999) / std::exp(2.0);
  for (const int64_t stride : {0, 7}) {
    const TextScore score = Score(knows, nullptr, SomeText(300, 1000), 150, stride);
    EXPECT_NEAR(score.model.perplexity(), expected, 1e-6 * expected) << stride;
  }
}

TEST(Perplexity, WindowsCountTheirSecondHalf) {
  const auto windows = CutIntoWindows(1100, 512, 0);
  ASSERT_TRUE(windows);
  ASSERT_EQ(windows->size(), 2u);  // 76 ids are left out
  EXPECT_EQ((*windows)[1].begin, 512);
  EXPECT_EQ((*windows)[1].first, 257);  // llama.cpp: logits from ctx/2 on, 255 ids of 512
  FakeLogits fake(8, [](int64_t, int32_t, int64_t) { return 0.0f; });
  EXPECT_EQ(Score(fake, nullptr, SomeText(1100, 8), 512).counted, 2 * 255);
  EXPECT_FALSE(CutIntoWindows(511, 512, 0));
}

TEST(Perplexity, WithAStrideEveryIdButTheFirstCountsOnce) {
  for (const int64_t ids : {2, 9, 10, 11, 100, 103})
    for (const int64_t stride : {1, 3, 9}) {
      const auto windows = CutIntoWindows(ids, 10, stride);
      ASSERT_TRUE(windows);
      std::vector<int> counted(static_cast<size_t>(ids));
      for (const TextWindow& window : *windows) {
        EXPECT_LE(window.size, 10);
        EXPECT_GE(window.first, 1);
        EXPECT_LT(window.first, window.size);
        for (int64_t i = window.first; i < window.size; ++i)
          ++counted[static_cast<size_t>(window.begin + i)];
      }
      EXPECT_EQ(counted[0], 0);
      for (size_t i = 1; i < counted.size(); ++i) EXPECT_EQ(counted[i], 1) << ids << " " << i;
    }
  EXPECT_FALSE(CutIntoWindows(1, 10, 3));
}

TEST(Perplexity, EveryWindowBeginsWithTheBeginOfTextId) {
  FakeLogits fake(8, [](int64_t, int32_t, int64_t) { return 0.0f; });
  TextIds text = SomeText(40, 8);
  text.ids[0] = 5;
  text.bos = 5;
  Score(fake, nullptr, text, 10);
  ASSERT_EQ(fake.read().size(), 4u);
  for (size_t w = 0; w < 4; ++w) {
    ASSERT_EQ(fake.read()[w].size(), 9u);  // the last id's logits foretell nothing that counts
    EXPECT_EQ(fake.read()[w][0], 5);
    for (size_t i = 1; i < 9; ++i) EXPECT_EQ(fake.read()[w][i], text.ids[10 * w + i]);
  }
}

TEST(Perplexity, LogitsThatAreNoNumbersAreAnError) {
  ThreadPool pool(1);
  const TextIds text = SomeText(40, 8);
  const auto windows = CutIntoWindows(40, 20, 0);
  for (const float bad : {NAN, INFINITY}) {
    FakeLogits fake(8, [=](int64_t position, int32_t, int64_t id) {
      return position == 15 && id == 3 ? bad : 0.0f;
    });
    const auto score = ScoreText(fake, nullptr, text, *windows, pool);
    ASSERT_FALSE(score);
    EXPECT_NE(score.error().message.find("after id 15"), std::string::npos)
        << score.error().message;
  }
}

TEST(Perplexity, StopsWhenToldTo) {
  ThreadPool pool(1);
  FakeLogits fake(8, [](int64_t, int32_t, int64_t) { return 0.0f; });
  const auto windows = CutIntoWindows(2000, 500, 0);
  int calls = 0;
  const auto score = ScoreText(fake, nullptr, SomeText(2000, 8), *windows, pool,
                               [&](int64_t, int64_t, double) { return ++calls < 4; });
  ASSERT_FALSE(score);
  EXPECT_EQ(score.error().code, ErrorCode::kInterrupted);
}

// Two distributions over two ids, by hand: p = (3/4, 1/4), q = (1/2, 1/2).
TEST(Divergence, IsWhatTheFormulaGives) {
  FakeLogits p(2, [](int64_t, int32_t, int64_t id) { return id == 0 ? std::log(3.0f) : 0.0f; });
  FakeLogits q(2, [](int64_t, int32_t, int64_t id) { return id == 0 ? 0.0f : 1e-6f; });
  const TextScore score = Score(q, &p, SomeText(100, 2), 50);
  ASSERT_TRUE(score.divergence);
  const double kl = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_NEAR(score.divergence->kl.mean, kl, 1e-6);
  EXPECT_NEAR(score.divergence->median_kl, kl, 1e-6);
  EXPECT_NEAR(score.divergence->max_kl, kl, 1e-6);
  EXPECT_EQ(score.divergence->same_top1.mean, 0);
  EXPECT_NEAR(*score.divergence->max_logit_difference, std::log(3.0), 1e-6);
  EXPECT_NEAR(score.divergence->log_probability.mean,
              score.against->loss.mean - score.model.loss.mean, 1e-12);
}

// The same three ids as kept by both; what was cut is spread otherwise, and that is not held
// against the model.
TEST(Divergence, OfCutLogProbabilitiesIsOverWhatWasKept) {
  class Cut : public FakeLogits {
   public:
    using FakeLogits::FakeLogits;
    bool cut_log_probabilities() const override { return true; }
  };
  const double ps[] = {0.5, 0.3, 0.1}, qs[] = {0.4, 0.4, 0.1};
  Cut p(10, [&](int64_t, int32_t, int64_t id) {
    return id < 3 ? static_cast<float>(std::log(ps[id])) : -9.0f;
  });
  FakeLogits q(10, [&](int64_t, int32_t, int64_t id) {
    return id < 3 ? static_cast<float>(std::log(qs[id])) : std::log(0.1f / 7);
  });
  double expected = 0;  // both sum to 0.9
  for (int i = 0; i < 3; ++i) expected += ps[i] / 0.9 * std::log(ps[i] / qs[i]);
  const TextScore score = Score(q, &p, SomeText(100, 3), 50);
  EXPECT_NEAR(score.divergence->kl.mean, expected, 1e-6);
  EXPECT_FALSE(score.divergence->max_logit_difference);
}

TEST(Mean, HasTheStandardErrorOfItsValues) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(MeanOf(values).mean, 2.5);
  EXPECT_DOUBLE_EQ(MeanOf(values).error, std::sqrt(5.0 / 3 / 4));
}

// A tokenizer that knows the bytes alone: every character but ASCII's is several ids.
TEST(EncodeForPerplexity, IdsCoverTheTextOnce) {
  const std::string text = "Lockstep: \u00e9n d\u00eda, \u65e5\u672c\u8a9e \U0001F600\n\n  x";
  const fs::path folder = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/tokenizers/gpt2";
  const auto encoder = ReadTextFile(folder / "encoder.json"),
             merges = ReadTextFile(folder / "vocab.bpe");
  ASSERT_TRUE(encoder && merges);
  const auto tokenizer = LoadGpt2Tokenizer(*encoder, *merges, "gpt2");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = EncodeForPerplexity(*tokenizer, text, std::nullopt);
  ASSERT_TRUE(ids) << ids.error().message;
  ASSERT_EQ(ids->bytes_before.size(), ids->ids.size() + 1);
  EXPECT_EQ(ids->bytes_before.front(), 0);
  EXPECT_EQ(ids->bytes_before.back(), static_cast<int64_t>(text.size()));
  EXPECT_TRUE(std::is_sorted(ids->bytes_before.begin(), ids->bytes_before.end()));
  // Up to the first character of several bytes the bytes are those of the ids' texts.
  EXPECT_EQ(ids->bytes_before[2],
            static_cast<int64_t>(tokenizer->Decode(std::span(ids->ids).first(2)).size()));
}

// Every small checkpoint, by reference and engine on the same weights.
class Goldens : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto model = LoadModel(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / GetParam());
    ASSERT_TRUE(model) << model.error().message;
    model_ = *std::move(model);
    text_ = SomeText(150, model_.spec.embedding.vocab_size);
    reference_ = ReferenceLogits(model_, pool_);
  }
  std::unique_ptr<LogitsSource> EngineWith(Activations activations) {
    auto engine = EngineLogits(model_, {.threads = 2, .activations = activations});
    EXPECT_TRUE(engine) << engine.error().message;
    return *std::move(engine);
  }
  double LargestLogit() {
    reference_->Reset();
    const auto logits = reference_->Append(std::span(text_.ids).first(50), true);
    EXPECT_TRUE(logits) << logits.error().message;
    double largest = 0;
    for (size_t r = 0; r < logits->rows; ++r)
      for (const float x : logits->row(r))
        largest = std::max(largest, static_cast<double>(std::abs(x)));
    return largest;
  }
  ThreadPool pool_{2};
  Model model_;
  TextIds text_;
  std::unique_ptr<LogitsSource> reference_;
};

TEST_P(Goldens, TheEnginesPerplexityIsTheReferences) {
  const auto engine = EngineWith(Activations::kF32);
  const TextScore score = Score(*engine, reference_.get(), text_, 50, 25);
  EXPECT_EQ(score.counted, 149);
  const double bound = 2 * kExactBound * std::max(1.0, LargestLogit());
  EXPECT_NEAR(score.model.loss.mean, score.against->loss.mean, bound);
  // A KL is of the second order in the logits' difference.
  EXPECT_LE(score.divergence->max_kl, bound * bound);
  EXPECT_NE(score.model.loss.mean, std::log(model_.spec.embedding.vocab_size));
}

TEST_P(Goldens, AModelIsNoDistanceFromItself) {
  ThreadPool other(1);
  const auto again = ReferenceLogits(model_, other);
  const auto engine = EngineWith(Activations::kInt8), twin = EngineWith(Activations::kInt8);
  for (const auto& [a, b] :
       {std::pair(reference_.get(), again.get()), std::pair(engine.get(), twin.get())}) {
    const TextScore score = Score(*a, b, text_, 60);
    EXPECT_EQ(score.divergence->max_kl, 0);
    EXPECT_EQ(score.divergence->max_logit_difference, 0);
    EXPECT_EQ(score.divergence->same_top1.mean, 1);
    EXPECT_EQ(score.divergence->log_probability.mean, 0);
    EXPECT_EQ(score.model.loss.mean, score.against->loss.mean);
  }
}

INSTANTIATE_TEST_SUITE_P(Perplexity, Goldens,
                         testing::Values("models/llama", "models/gemma3", "models/gpt2",
                                         "models/qwen3-moe", "models/deepseek-v3", "models/lfm2",
                                         "models/llama-rope-dynamic", "gguf/llama-Q4_0.gguf",
                                         "gguf/llama-Q4_K_M.gguf", "gguf/gemma3-Q4_0.gguf"),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : info.param)
                             name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// int8 activations are another arithmetic: a distance of 0 there would mean that nothing was
// compared.
TEST(Divergence, SeesTheRoundingOfActivations) {
  const auto model = LoadModel(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf/llama-Q4_0.gguf");
  ASSERT_TRUE(model) << model.error().message;
  ThreadPool pool(2);
  const auto reference = ReferenceLogits(*model, pool);
  const auto engine = EngineLogits(*model, {.threads = 2, .activations = Activations::kInt8});
  ASSERT_TRUE(engine) << engine.error().message;
  const TextScore score =
      Score(**engine, reference.get(), SomeText(150, model->spec.embedding.vocab_size), 50);
  EXPECT_GT(score.divergence->median_kl, 0);
  EXPECT_LT(score.divergence->median_kl, 0.05);
}

}  // namespace
}  // namespace lockstep

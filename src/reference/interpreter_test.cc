#include "reference/interpreter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/random_weights.h"
#include "spec/fields.h"
#include "spec/random_spec.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

constexpr int kSpecs = 40;

std::vector<int32_t> Ids(const ModelSpec& spec, size_t n) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i)
    ids.push_back(
        static_cast<int32_t>((i * 7919 + 3) % static_cast<size_t>(spec.embedding.vocab_size)));
  return ids;
}

// The longest prompt of up to `n` that the spec allows.
size_t Allowed(const ModelSpec& spec, size_t n) {
  const auto limit = ContextLimit(spec);
  return limit ? std::min(n, static_cast<size_t>(*limit)) : n;
}

template <typename T>
std::vector<T> All(const ModelSpec& spec, const Weights& weights, int threads,
                   std::span<const int32_t> ids) {
  ThreadPool pool(threads);
  Interpreter<T> interpreter(spec, weights, pool);
  auto sequence = interpreter.NewSequence();
  const auto logits = interpreter.Append(sequence, ids, LogitsFor::kAll);
  EXPECT_TRUE(logits.has_value()) << logits.error().message;
  return {logits->data, logits->data + logits->rows * logits->cols};
}

class EverySpec : public testing::TestWithParam<int> {
 protected:
  const ModelSpec spec = RandomSpec(static_cast<uint64_t>(GetParam()));
  const std::unique_ptr<OwnedWeights> owned = RandomWeights(spec, 5);
  const Weights& weights = owned->weights;
  const std::vector<int32_t> ids = Ids(spec, Allowed(spec, 21));
};

TEST_P(EverySpec, ThreadsChangeNoBit) {
  EXPECT_EQ(All<float>(spec, weights, 1, ids), All<float>(spec, weights, 3, ids));
}

TEST_P(EverySpec, GivesFiniteLogitsThatDoubleAgreesWith) {
  const auto narrow = All<float>(spec, weights, 2, ids);
  const auto wide = All<double>(spec, weights, 2, ids);
  double largest = 0;
  for (const double x : wide) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < narrow.size(); ++i) {
    ASSERT_TRUE(std::isfinite(narrow[i]));
    // A router may choose otherwise where two experts tie; random logits do not come that near.
    ASSERT_NEAR(narrow[i], wide[i], 1e-3 * std::max(1.0, largest)) << Describe(spec);
  }
}

TEST_P(EverySpec, CuttingThePromptChangesNoBit) {
  if (DependsOnCallLength(spec)) GTEST_SKIP() << "the definition depends on the length of the call";
  const auto whole = All<float>(spec, weights, 1, ids);
  const auto vocab = static_cast<size_t>(spec.embedding.vocab_size);
  ThreadPool pool(2);
  Interpreter<float> interpreter(spec, weights, pool);
  auto sequence = interpreter.NewSequence();
  const size_t cuts[] = {0, std::min<size_t>(5, ids.size()), std::min<size_t>(6, ids.size()),
                         ids.size()};
  for (size_t c = 0; c + 1 < std::size(cuts); ++c) {
    const auto part = std::span(ids).subspan(cuts[c], cuts[c + 1] - cuts[c]);
    if (part.empty()) continue;
    const auto logits = interpreter.Append(sequence, part, LogitsFor::kAll);
    ASSERT_TRUE(logits.has_value());
    for (size_t i = 0; i < part.size() * vocab; ++i)
      ASSERT_EQ(logits->data[i], whole[cuts[c] * vocab + i]);
  }
}

TEST_P(EverySpec, TruncatingForgetsWithoutTrace) {
  ThreadPool pool(1);
  Interpreter<float> interpreter(spec, weights, pool);
  auto fresh = interpreter.NewSequence(), used = interpreter.NewSequence();
  const auto head = std::span(ids).first(ids.size() / 2);
  ASSERT_TRUE(interpreter.Append(used, ids));
  ASSERT_TRUE(interpreter.Append(fresh, head));
  // The whole prompt may have chosen other frequencies for its first half.
  if (DependsOnCallLength(spec)) GTEST_SKIP() << "the definition depends on the length of the call";
  interpreter.Truncate(used, static_cast<int64_t>(head.size()));
  const auto a = interpreter.Append(fresh, std::span(ids).last(1));
  ASSERT_TRUE(a);
  const std::vector<float> expected(a->data, a->data + a->cols);
  const auto b = interpreter.Append(used, std::span(ids).last(1));
  ASSERT_TRUE(b);
  EXPECT_EQ(std::vector<float>(b->data, b->data + b->cols), expected);
}

TEST_P(EverySpec, PaddingOnEitherSideLeavesARowAlone) {
  ThreadPool pool(2);
  Interpreter<float> interpreter(spec, weights, pool);
  const size_t n = ids.size() - 3;
  const auto alone = All<float>(spec, weights, 1, std::span(ids).first(n));
  const auto vocab = static_cast<size_t>(spec.embedding.vocab_size);
  std::vector<int32_t> batch;
  std::vector<uint8_t> mask;
  const auto add = [&](size_t left, size_t right) {
    batch.insert(batch.end(), left, 0);
    mask.insert(mask.end(), left, 0);
    batch.insert(batch.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    mask.insert(mask.end(), n, 1);
    batch.insert(batch.end(), right, 0);
    mask.insert(mask.end(), right, 0);
  };
  add(3, 0);
  add(0, 3);
  batch.insert(batch.end(), n + 3, 0);  // a row of padding only
  mask.insert(mask.end(), n + 3, 0);
  const auto logits = interpreter.RunBatch(batch, mask, 3);
  ASSERT_TRUE(logits.has_value()) << logits.error().message;
  const auto at = [&](size_t row, size_t position) {
    return logits->begin() + static_cast<std::ptrdiff_t>((row * (n + 3) + position) * vocab);
  };
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at(0, 3)));
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at(1, 0)));
  EXPECT_TRUE(std::all_of(at(2, 0), logits->end(), [](float x) { return x == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Reference, EverySpec, testing::Range(0, kSpecs));

TEST(Interpreter, RefusesWhatDoesNotFitAndSaysTheNumbers) {
  ModelSpec spec = RandomSpec(1);
  spec.embedding.positions = LearnedPositions{.num_positions = 8};
  spec.max_position_embeddings = 8;
  const auto owned = RandomWeights(spec, 5);
  ThreadPool pool(1);
  Interpreter<float> interpreter(spec, owned->weights, pool);
  auto sequence = interpreter.NewSequence();
  ASSERT_TRUE(interpreter.Append(sequence, Ids(spec, 8)));
  const auto over = interpreter.Append(sequence, Ids(spec, 1));
  ASSERT_FALSE(over);
  EXPECT_NE(over.error().message.find("9 tokens (8 held, 1 new)"), std::string::npos)
      << over.error().message;
  EXPECT_EQ(sequence.length, 8);
  const std::vector<int32_t> unknown{static_cast<int32_t>(spec.embedding.vocab_size)};
  auto other = interpreter.NewSequence();
  EXPECT_FALSE(interpreter.Append(other, unknown));
  EXPECT_FALSE(interpreter.Append(other, {}));
}

}  // namespace
}  // namespace lockstep

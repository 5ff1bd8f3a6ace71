#include "reference/evaluate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/model.h"
#include "model/random_weights.h"
#include "reference/interpreter.h"
#include "spec/random_spec.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// Ids that any of the small vocabularies has.
EvaluatedSequence SequenceFor(const ModelSpec& spec) {
  EvaluatedSequence sequence;
  const auto limit = ContextLimit(spec).value_or(12);
  for (int64_t i = 0; i < std::min<int64_t>(limit, 12); ++i)
    sequence.ids.push_back(static_cast<int32_t>((i * 7 + 3) % spec.embedding.vocab_size));
  const auto length = static_cast<int64_t>(sequence.ids.size());
  sequence.prompt = (length + 1) / 2;
  for (int64_t p = 0; p < length; p += 2) sequence.positions.push_back(p);
  return sequence;
}

std::vector<float> ByAppend(const ModelSpec& spec, const Weights& weights, ThreadPool& pool,
                            const EvaluatedSequence& sequence) {
  Interpreter<float> interpreter(spec, weights, pool);
  Sequence<float> state = interpreter.NewSequence();
  const auto logits = interpreter.Append(state, sequence.ids, LogitsFor::kAll);
  EXPECT_TRUE(logits) << logits.error().message;
  std::vector<float> out;
  for (const int64_t p : sequence.positions) {
    const auto row = logits->row(static_cast<size_t>(p));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

TEST(Evaluate, FromAnyLayerOnGivesTheBitsOfOneAppend) {
  ThreadPool pool(1);
  int compared = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    if (DependsOnCallLength(spec)) continue;
    const auto owned = RandomWeights(spec, seed);
    const EvaluatedSequence sequence = SequenceFor(spec);
    const std::vector<float> expected = ByAppend(spec, owned->weights, pool, sequence);
    Stream stream;
    const auto whole =
        Evaluate<float>(spec, owned->weights, pool, sequence, {}, {}, -1, nullptr, &stream);
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(*whole, expected) << "seed " << seed;
    for (int first = 0; first <= static_cast<int>(spec.layers.size()); ++first, ++compared)
      EXPECT_EQ(*Evaluate<float>(spec, owned->weights, pool, sequence, {}, {}, first, &stream),
                expected)
          << "seed " << seed << ", layer " << first;
  }
  EXPECT_GT(compared, 50);
}

TEST(Evaluate, SomeIdsOfTheVocabularyAreThoseOfAll) {
  ThreadPool pool(1);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const ModelSpec spec = RandomSpec(seed);
    const auto owned = RandomWeights(spec, seed);
    const EvaluatedSequence sequence = SequenceFor(spec);
    const auto all = Evaluate<float>(spec, owned->weights, pool, sequence, {});
    const std::vector<int32_t> ids = {0, 2, static_cast<int32_t>(spec.embedding.vocab_size) - 1};
    const auto some = Evaluate<float>(spec, owned->weights, pool, sequence, ids);
    ASSERT_TRUE(all && some);
    ASSERT_EQ(some->size(), ids.size() * sequence.positions.size());
    const auto vocab = static_cast<size_t>(spec.embedding.vocab_size);
    for (size_t row = 0; row < sequence.positions.size(); ++row)
      for (size_t i = 0; i < ids.size(); ++i)
        EXPECT_EQ((*some)[row * ids.size() + i], (*all)[row * vocab + static_cast<size_t>(ids[i])])
            << "seed " << seed;
  }
}

// Rope scalings that ask for the length of the call are run as a runtime with a cache runs them.
TEST(Evaluate, WhereCallsMatterThePromptAndThenTokenByToken) {
  ThreadPool pool(1);
  const auto model = LoadModel(std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                               "tests/golden/models/llama-rope-dynamic");
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(DependsOnCallLength(model->spec));
  EvaluatedSequence sequence;
  for (int i = 0; i < 150; ++i) sequence.ids.push_back(i % 100);
  sequence.prompt = 140;
  sequence.positions = {139, 140, 149};
  const auto stepped = Evaluate<float>(model->spec, model->weights, pool, sequence, {});
  ASSERT_TRUE(stepped) << stepped.error().message;
  Interpreter<float> interpreter(model->spec, model->weights, pool);
  Sequence<float> state = interpreter.NewSequence();
  const std::span<const int32_t> ids = sequence.ids;
  const auto vocab = static_cast<size_t>(model->spec.embedding.vocab_size);
  std::vector<float> expected;
  for (size_t begin = 0; begin < ids.size();) {
    const size_t count = begin == 0 ? 140 : 1;
    const auto row = interpreter.Append(state, ids.subspan(begin, count));
    ASSERT_TRUE(row);
    begin += count;
    if (begin == 140 || begin == 141 || begin == 150)
      expected.insert(expected.end(), row->data, row->data + vocab);
  }
  EXPECT_EQ(*stepped, expected);
}

TEST(Evaluate, ATokenOutsideTheVocabularyIsAnError) {
  ThreadPool pool(1);
  const ModelSpec spec = RandomSpec(1);
  const auto owned = RandomWeights(spec, 1);
  EXPECT_FALSE(Evaluate<float>(spec, owned->weights, pool, {{-1}, 1, {0}}, {}));
}

TEST(FirstDifferentLayer, IsWhereTheStreamsPart) {
  ModelSpec a = RandomSpec(3);
  a.layers.resize(3, a.layers.front());
  const auto changed = [&](auto edit) {
    ModelSpec b = a;
    edit(b);
    return FirstDifferentLayer(a, b, {});
  };
  EXPECT_EQ(changed([](ModelSpec&) {}), std::nullopt);
  EXPECT_EQ(changed([](ModelSpec& s) { s.tokens.bos = 77; }), std::nullopt);
  EXPECT_EQ(changed([](ModelSpec& s) { s.embedding.scale.value = 77; }), -1);
  EXPECT_EQ(changed([](ModelSpec& s) { s.layers[1].residual.value = 77; }), 1);
  EXPECT_EQ(changed([](ModelSpec& s) { s.final_norm.eps = 77; }), 3);
  EXPECT_EQ(changed([](ModelSpec& s) { s.layers.pop_back(); }), -1);
  const std::vector<WeightId> weight = {{Role::kVProj, Part::kWeight, 2, -1}};
  EXPECT_EQ(FirstDifferentLayer(a, a, weight), 2);
  const std::vector<WeightId> head = {{Role::kLmHead}};
  EXPECT_EQ(FirstDifferentLayer(a, a, head), 3);
}

}  // namespace
}  // namespace lockstep

// The engine against the reference and the goldens, for every kind of model and every instruction
// set that this processor runs. docs/numerics.md states the bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "engine/engine.h"
#include "engine/kernels/kernel_table.h"
#include "formats/safetensors.h"
#include "model/model.h"
#include "model/random_weights.h"
#include "reference/interpreter.h"
#include "spec/fields.h"
#include "spec/ledger.h"
#include "spec/random_spec.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

// With fp32 activations the engine differs from the reference by the order of fp32 additions alone.
constexpr double kExactBound = 2e-4;

std::vector<int32_t> Ids(const ModelSpec& spec, size_t n) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < n; ++i)
    ids.push_back(
        static_cast<int32_t>((i * 7919 + 3) % static_cast<size_t>(spec.embedding.vocab_size)));
  return ids;
}

std::vector<float> Flat(MatrixView<const float> logits) {
  std::vector<float> all;
  for (size_t t = 0; t < logits.rows; ++t)
    all.insert(all.end(), logits.row(t).begin(), logits.row(t).end());
  return all;
}

std::vector<float> EngineLogits(const ModelSpec& spec, const Weights& weights,
                                const EngineOptions& options, std::span<const int32_t> ids) {
  const auto engine = Engine::Create(spec, weights, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  auto sequence = (*engine)->NewSequence();
  const auto logits = (*engine)->Append(sequence, ids, Engine::Logits::kAll);
  EXPECT_TRUE(logits.has_value()) << logits.error().message;
  return Flat(*logits);
}

std::vector<float> ReferenceLogits(const ModelSpec& spec, const Weights& weights,
                                   std::span<const int32_t> ids) {
  ThreadPool pool(2);
  Interpreter<float> interpreter(spec, weights, pool);
  auto sequence = interpreter.NewSequence();
  const auto logits = interpreter.Append(sequence, ids, LogitsFor::kAll);
  EXPECT_TRUE(logits.has_value()) << logits.error().message;
  return Flat(*logits);
}

double Largest(std::span<const float> x) {
  double largest = 0;
  for (const float e : x) largest = std::max(largest, static_cast<double>(std::abs(e)));
  return largest;
}

// NaN counts as the largest difference.
double MaxDifference(std::span<const float> a, std::span<const float> b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(d <= worst)) worst = std::isnan(d) ? INFINITY : d;
  }
  return worst;
}

class WithIsa {
 public:
  explicit WithIsa(std::string_view name) { setenv("LOCKSTEP_ISA", std::string(name).c_str(), 1); }
  ~WithIsa() { unsetenv("LOCKSTEP_ISA"); }
};

std::vector<const KernelTable*> TablesThatRunHere() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : KernelTables())
    if (table->runs_here()) tables.push_back(table);
  return tables;
}

class EverySpec : public testing::TestWithParam<int> {
 protected:
  const ModelSpec spec = RandomSpec(static_cast<uint64_t>(GetParam()));
  const std::unique_ptr<OwnedWeights> owned = RandomWeights(spec, 5);
  const size_t length =
      std::min<size_t>(100, static_cast<size_t>(PositionLimit(spec).value_or(100)));  // two pages
  const std::vector<int32_t> ids = Ids(spec, length);
};

// How far the reference's own logits move when every weight changes by an ulp or two: a router that
// stands between two experts turns rounding into another answer, and then no second program can
// agree.
double Sensitivity(const ModelSpec& spec, std::span<const int32_t> ids,
                   std::span<const float> expected) {
  const auto moved = RandomWeights(spec, 5);
  for (size_t i = 0; i < moved->values.size(); ++i)
    moved->values[i] *= i % 3 == 0 ? 1 + 0x1p-22f : 1 - 0x1p-22f;
  return MaxDifference(ReferenceLogits(spec, moved->weights, ids), expected);
}

TEST_P(EverySpec, EveryInstructionSetGivesTheReference) {
  const auto expected = ReferenceLogits(spec, owned->weights, ids);
  if (Sensitivity(spec, ids, expected) > 0.1 * Largest(expected))
    GTEST_SKIP() << "a router of this spec stands between two experts";
  for (const KernelTable* table : TablesThatRunHere()) {
    const WithIsa isa(table->name);
    const auto found =
        EngineLogits(spec, owned->weights, {.threads = 2, .activations = Activations::kF32}, ids);
    EXPECT_LE(MaxDifference(found, expected), kExactBound * std::max(1.0, Largest(expected)))
        << table->name << "\n"
        << Describe(spec);
  }
}

TEST_P(EverySpec, ThreadsAndCutsChangeNoBit) {
  const auto options = [&](int threads) {
    return EngineOptions{.threads = threads, .kv = static_cast<KvType>(GetParam() % 5)};
  };
  const auto whole = EngineLogits(spec, owned->weights, options(1), ids);
  EXPECT_EQ(EngineLogits(spec, owned->weights, options(3), ids), whole);
  if (DependsOnCallLength(spec)) GTEST_SKIP() << "the definition depends on the length of the call";
  const auto engine = Engine::Create(spec, owned->weights, options(2));
  ASSERT_TRUE(engine);
  auto sequence = (*engine)->NewSequence();
  const auto vocab = static_cast<size_t>(spec.embedding.vocab_size);
  size_t at = 0;
  for (const size_t n : {size_t{1}, size_t{5}, size_t{1}, size_t{43}, length}) {
    const auto part = std::span(ids).subspan(at, std::min(n, length - at));
    if (part.empty()) break;
    const auto logits = (*engine)->Append(sequence, part, Engine::Logits::kAll);
    ASSERT_TRUE(logits);
    const auto found = Flat(*logits);
    ASSERT_TRUE(std::equal(found.begin(), found.end(),
                           whole.begin() + static_cast<std::ptrdiff_t>(at * vocab)));
    at += part.size();
  }
}

// Only rows whose logits are wanted go through the end of the last layer.
TEST_P(EverySpec, RowsThatAreNotAskedForChangeNoOther) {
  if (DependsOnCallLength(spec)) GTEST_SKIP() << "the definition depends on the length of the call";
  const auto engine = Engine::Create(spec, owned->weights, {.threads = 2});
  ASSERT_TRUE(engine);
  auto a = (*engine)->NewSequence(), b = (*engine)->NewSequence(), c = (*engine)->NewSequence();
  const auto all = (*engine)->Append(a, ids, Engine::Logits::kAll);
  ASSERT_TRUE(all);
  const std::vector<float> last(all->row(length - 1).begin(), all->row(length - 1).end());
  const std::vector<float> middle(all->row(length / 2).begin(), all->row(length / 2).end());
  // One sequence reads all but its end without logits; two end in the same call.
  const auto whole = std::span(ids);
  ASSERT_TRUE((*engine)->Append(b, whole.first(length / 2), Engine::Logits::kNone));
  EngineStep steps[] = {{.sequence = &b, .ids = whole.subspan(length / 2)},
                        {.sequence = &c, .ids = whole.first(length / 2 + 1)}};
  ASSERT_TRUE((*engine)->Run(steps));
  EXPECT_EQ(Flat(steps[0].logits), last);
  EXPECT_EQ(Flat(steps[1].logits), middle);
}

TEST_P(EverySpec, TruncatingForgetsWithoutTrace) {
  if (DependsOnCallLength(spec)) GTEST_SKIP() << "the definition depends on the length of the call";
  const auto engine = Engine::Create(spec, owned->weights, {.threads = 2});
  ASSERT_TRUE(engine);
  auto used = (*engine)->NewSequence(), fresh = (*engine)->NewSequence();
  const auto head = std::span(ids).first(length / 2);
  ASSERT_TRUE((*engine)->Append(used, ids));
  const auto held = (*engine)->Truncate(used, static_cast<int64_t>(head.size()));
  if (const auto rest = head.subspan(static_cast<size_t>(held)); !rest.empty()) {
    ASSERT_TRUE((*engine)->Append(used, rest));
  }
  ASSERT_TRUE((*engine)->Append(fresh, head));
  const auto a = (*engine)->Append(used, std::span(ids).last(1));
  ASSERT_TRUE(a);
  const auto kept = Flat(*a);
  const auto b = (*engine)->Append(fresh, std::span(ids).last(1));
  ASSERT_TRUE(b);
  EXPECT_EQ(kept, Flat(*b));
}

INSTANTIATE_TEST_SUITE_P(Engine, EverySpec, testing::Range(0, 24));

// llama.cpp's own max |logit difference| against the golden of each file, measured once: int8
// activations may not lie further from the truth than that.
struct FileBound {
  std::string_view file;
  double llama_cpp;
};
constexpr FileBound kFiles[] = {
    {"gemma3-Q4_0", 0.308},  {"gemma3-Q4_K_M", 0.383}, {"llama-F32", 3.0e-3},
    {"llama-IQ4_XS", 0.179}, {"llama-Q2_K", 0.198},    {"llama-Q4_0", 0.127},
    {"llama-Q4_K_M", 0.187}, {"llama-Q6_K", 0.185},
};

TEST(Int8Activations, LieNoFurtherFromTheGoldenThanLlamaCpp) {
  int seen = 0;
  for (const std::string& folder : {std::string(LOCKSTEP_SOURCE_DIR "/tests/golden/gguf"),
                                    std::string(LOCKSTEP_GOLDENS "/gguf")}) {
    for (const FileBound& bound : kFiles) {
      const std::filesystem::path path = folder + "/" + std::string(bound.file) + ".gguf";
      if (!std::filesystem::exists(path)) continue;
      ++seen;
      const auto model = LoadModel(path);
      ASSERT_TRUE(model) << model.error().message;
      const auto golden =
          OpenSafetensors(std::filesystem::path(path).replace_extension("safetensors"));
      ASSERT_TRUE(golden) << golden.error().message;
      const auto ids64 = golden->Find("input_ids")->data;
      std::vector<int64_t> wide(ids64.size() / 8);
      std::memcpy(wide.data(), ids64.data(), ids64.size());
      const std::vector<int32_t> ids(wide.begin(), wide.end());
      std::vector<float> expected(static_cast<size_t>(golden->Find("logits")->elements()));
      std::memcpy(expected.data(), golden->Find("logits")->data.data(), expected.size() * 4);
      for (const KernelTable* table : TablesThatRunHere()) {
        const WithIsa isa(table->name);
        EXPECT_LE(
            MaxDifference(EngineLogits(model->spec, model->weights, {.threads = 2}, ids), expected),
            bound.llama_cpp)
            << bound.file << " " << table->name;
        EXPECT_LE(MaxDifference(EngineLogits(model->spec, model->weights,
                                             {.threads = 2, .activations = Activations::kF32}, ids),
                                expected),
                  kExactBound)
            << bound.file << " " << table->name;
      }
    }
  }
  EXPECT_GE(seen, 4);
}

TEST(Engine, RefusesKernelsThatDoNotExist) {
  const ModelSpec spec = RandomSpec(3);
  const auto owned = RandomWeights(spec, 5);
  const WithIsa isa("altivec");
  const auto engine = Engine::Create(spec, owned->weights, {});
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("scalar"), std::string::npos) << engine.error().message;
}

// Pages hold what inspect's ledger promises; codes of keys add a scale for each 32 elements.
TEST(Engine, TheCacheTakesWhatTheLedgerPredicts) {
  const auto model = LoadModel(LOCKSTEP_SOURCE_DIR "/tests/golden/gguf/llama-Q4_K_M.gguf");
  ASSERT_TRUE(model) << model.error().message;
  for (const auto& [type, element_size] :
       {std::pair{KvType::kF32, 4}, {KvType::kF16, 2}, {KvType::kBF16, 2}}) {
    const auto engine = Engine::Create(model->spec, model->weights, {.threads = 1, .kv = type});
    ASSERT_TRUE(engine);
    auto sequence = (*engine)->NewSequence();
    ASSERT_TRUE((*engine)->Append(sequence, Ids(model->spec, 64)));
    const auto ledger =
        ComputeLedger(model->spec, {.context = 64, .kv_element_size = element_size});
    ASSERT_TRUE(ledger);
    EXPECT_EQ((*engine)->cache().bytes_in_use(), static_cast<size_t>(ledger->kv_cache_full))
        << Name(type);
  }
  const KvShape shape{KvType::kQ16, 3, 64, 64};
  EXPECT_EQ(shape.PageBytes(), 3u * kPageTokens * (2 * 64 + 2 * 4 + 2 * 64));
}

// Two positions of a page lie in the same bytes of their values: two workers write them in one
// call.
TEST(Engine, TwoWorkersMayWriteNeighbouringPositions) {
  const auto model = LoadModel(LOCKSTEP_SOURCE_DIR "/tests/golden/gguf/llama-Q4_K_M.gguf");
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<int32_t> ids = Ids(model->spec, 64);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ16, KvType::kQ8}) {
    std::vector<float> expected;
    for (const int threads : {1, 2}) {
      const auto engine =
          Engine::Create(model->spec, model->weights, {.threads = threads, .kv = type});
      ASSERT_TRUE(engine);
      for (int round = 0; round < (threads == 1 ? 1 : 40); ++round) {
        auto sequence = (*engine)->NewSequence();
        std::vector<float> found;
        for (size_t at = 0; at < ids.size(); at += 2) {
          const auto logits =
              (*engine)->Append(sequence, std::span(ids).subspan(at, 2), Engine::Logits::kAll);
          ASSERT_TRUE(logits);
          const auto flat = Flat(*logits);
          found.insert(found.end(), flat.begin(), flat.end());
        }
        if (threads == 1) expected = found;
        ASSERT_EQ(found, expected) << Name(type) << ", round " << round;
      }
    }
  }
}

TEST(Engine, WeightsThatAreNotNumbersGiveNoToken) {
  const ModelSpec spec = RandomSpec(1);
  const auto owned = RandomWeights(spec, 5);
  for (float& w : owned->values) w = std::numeric_limits<float>::quiet_NaN();
  const auto engine = Engine::Create(spec, owned->weights, {.threads = 2});
  ASSERT_TRUE(engine);
  auto sequence = (*engine)->NewSequence();
  const auto logits = (*engine)->Append(sequence, Ids(spec, 5));
  ASSERT_TRUE(logits);
  for (const float x : logits->row(0)) ASSERT_TRUE(std::isnan(x));
}

TEST(Engine, RefusesWhatDoesNotFitAndStaysAsItWas) {
  ModelSpec spec = RandomSpec(1);
  spec.embedding.positions = LearnedPositions{.num_positions = 8};
  spec.max_position_embeddings = 8;
  const auto owned = RandomWeights(spec, 5);
  const auto engine = Engine::Create(spec, owned->weights, {.threads = 1});
  ASSERT_TRUE(engine);
  auto sequence = (*engine)->NewSequence();
  ASSERT_TRUE((*engine)->Append(sequence, Ids(spec, 8)));
  EXPECT_FALSE((*engine)->Append(sequence, Ids(spec, 1)));
  EXPECT_FALSE((*engine)->Append(sequence, {}));
  EXPECT_EQ(sequence.length(), 8);
}

}  // namespace
}  // namespace lockstep

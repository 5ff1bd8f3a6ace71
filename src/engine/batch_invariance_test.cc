// The scheduler over the real engine: a request's ids and logits are bit for bit those of the
// request alone, whatever runs beside it, however prompts are cut, shared or read again, and for
// any number of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "engine/lookup.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace lockstep {
namespace {

constexpr int64_t kPositions = 2000;

// Windows, grouped experts, short convolutions, latent attention, sinks; floats and codes.
const char* const kModels[] = {"models/mistral-sliding", "models/mixtral",        "models/lfm2",
                               "models/gpt-oss",         "models/deepseek-v3",    "models/gemma3",
                               "gguf/gemma3-Q4_0.gguf",  "gguf/llama-Q4_K_M.gguf"};

Model Load(const std::string& name) {
  Result<Model> model =
      LoadModel(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name);
  LS_CHECK(model.has_value(), "{}", model.error().message);
  model->spec.max_position_embeddings = kPositions;  // several pages
  return *std::move(model);
}

std::unique_ptr<Engine> NewEngine(const Model& model, int threads, size_t limit = 0) {
  auto engine = Engine::Create(model.spec, model.weights,
                               {.threads = threads, .kv = std::nullopt, .kv_limit_bytes = limit});
  LS_CHECK(engine.has_value(), "{}", engine.error().message);
  return *std::move(engine);
}

struct Outcome {
  std::vector<int32_t> ids;
  std::vector<std::vector<float>> logits;
  std::optional<RequestEnd> end;
};

void Watch(Request& request, Outcome& outcome) {
  request.on_token = [&outcome](const NewToken& token) {
    outcome.ids.push_back(token.id);
    outcome.logits.emplace_back(token.logits.begin(), token.logits.end());
    return true;
  };
  request.on_end = [&outcome](const RequestEnd& end) { outcome.end = end; };
}

std::vector<Request> RandomRequests(size_t count, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  const auto ids = [&](size_t n) {
    std::vector<int32_t> out(n);
    for (int32_t& id : out) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size));
    return out;
  };
  const std::vector<int32_t> beginnings[] = {ids(130), ids(70), {}};
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    Request request;
    request.prompt = beginnings[random() % 3];
    const std::vector<int32_t> rest = ids(1 + random() % (i % 5 == 0 ? 400 : 60));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    request.config.max_new_tokens = 1 + static_cast<int64_t>(random() % 40);
    request.config.do_sample = random() % 2 == 0;
    request.config.seed = random() % 7;
    if (random() % 3 == 0) request.config.repetition_penalty = 1.2;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Alone, the prompt in one call, one thread.
std::vector<Outcome> Alone(const Model& model, const std::vector<Request>& requests) {
  const auto engine = NewEngine(model, 1);
  std::vector<Outcome> outcomes;
  for (const Request& request : requests) {
    class Plain : public Decoder {
     public:
      explicit Plain(Engine& e) : engine(e), sequence(e.NewSequence()) {}
      Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
        LS_TRY(const auto logits, engine.Append(sequence, ids));
        rows.emplace_back(logits.row(0).begin(), logits.row(0).end());
        return std::span<const float>(rows.back());
      }
      int64_t position() const override { return sequence.length(); }
      Engine& engine;
      KvSequence sequence;
      std::vector<std::vector<float>> rows;
    } plain(*engine);
    const auto result = Generate(plain, request.prompt, request.config);
    LS_CHECK(result.has_value(), "{}", result.error().message);
    outcomes.push_back({result->ids, std::move(plain.rows), {}});
  }
  return outcomes;
}

void ExpectBeginsLike(const Outcome& outcome, const Outcome& alone) {
  ASSERT_TRUE(outcome.end);
  ASSERT_FALSE(outcome.end->error) << outcome.end->error->message;
  if (outcome.end->reason != StopReason::kCancelled) {
    EXPECT_EQ(outcome.ids.size(), alone.ids.size());
  }
  ASSERT_LE(outcome.ids.size(), alone.ids.size());
  for (size_t i = 0; i < outcome.ids.size(); ++i) {
    ASSERT_EQ(outcome.logits[i].size(), alone.logits[i].size());
    ASSERT_EQ(std::memcmp(outcome.logits[i].data(), alone.logits[i].data(),
                          alone.logits[i].size() * sizeof(float)),
              0)
        << "token " << i;
    ASSERT_EQ(outcome.ids[i], alone.ids[i]) << "token " << i;
  }
}

class BatchInvariance : public testing::TestWithParam<const char*> {};

TEST_P(BatchInvariance, SixteenSequencesAnswerAsEachAlone) {
  const Model model = Load(GetParam());
  const std::vector<Request> requests = RandomRequests(20, model.spec.embedding.vocab_size, 1);
  const std::vector<Outcome> alone = Alone(model, requests);
  uint64_t hits = 0, cancelled = 0, preempted = 0;
  bool windowed = false;  // then less is held, and all may fit
  for (const int threads : {1, 2})
    for (uint32_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(fmt::format("{} threads, seed {}", threads, seed));
      // The last time with memory for little more than the longest.
      size_t limit = 0;
      if (seed == 2) {
        const auto one = NewEngine(model, 1);
        limit = one->cache().BytesToExtend(one->NewSequence(), 600);
      }
      const auto engine = NewEngine(model, threads, limit);
      windowed = engine->cache().windowed();
      EngineStepper stepper(*engine);
      SchedulerOptions options = SchedulerOptionsFor(model.spec);
      options.chunk = seed == 0 ? 33 : 128;
      Scheduler scheduler(stepper, options);
      std::mt19937 random(seed);
      std::vector<Outcome> outcomes(requests.size());
      std::vector<uint64_t> numbers;
      for (bool worked = true; worked || numbers.size() < requests.size();) {
        for (size_t burst = random() % 6; burst > 0 && numbers.size() < requests.size(); --burst) {
          Request request = requests[numbers.size()];
          Watch(request, outcomes[numbers.size()]);
          const auto number = scheduler.Submit(std::move(request));
          ASSERT_TRUE(number) << number.error().message;
          numbers.push_back(*number);
        }
        if (!numbers.empty() && random() % 20 == 0)
          scheduler.Cancel(numbers[random() % numbers.size()]);
        worked = scheduler.Step();
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectBeginsLike(outcomes[i], alone[i]);
      }
      hits += scheduler.statistics().prefix_hits;
      cancelled += scheduler.statistics().cancelled;
      preempted += scheduler.statistics().preempted;
    }
  EXPECT_GT(hits, 10u);
  EXPECT_GT(cancelled, 3u);
  if (!windowed) {
    EXPECT_GT(preempted, 0u);
  }
}

// Every way of cutting a sequence into calls, rewinding and forking.
void ExpectRewindsAreExact(const Model& model, const EngineOptions& options) {
  const auto engine = *Engine::Create(model.spec, model.weights, options);
  std::mt19937 random(5);
  std::vector<int32_t> ids(300);
  for (int32_t& id : ids)
    id = static_cast<int32_t>(random() % static_cast<uint64_t>(model.spec.embedding.vocab_size));
  auto fresh = engine->NewSequence();
  const auto rows = engine->Append(fresh, ids, Engine::Logits::kAll);
  ASSERT_TRUE(rows);
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < ids.size(); ++i)
    expected.emplace_back(rows->row(i).begin(), rows->row(i).end());
  std::vector<KvSequence> sequences;
  sequences.push_back(engine->NewSequence());
  for (int step = 0; step < 300; ++step) {
    auto& sequence = sequences[random() % sequences.size()];
    const auto length = static_cast<size_t>(sequence.length());
    if (random() % 4 == 0) {
      engine->Truncate(sequence,
                       static_cast<int64_t>(length - random() % std::min<size_t>(length + 1, 80)));
    } else if (random() % 6 == 0 && sequences.size() < 6) {
      KvSequence fork =
          engine->cache().Fork(sequence, static_cast<int64_t>(random() % (length + 1)));
      sequences.push_back(std::move(fork));
    } else if (length == ids.size()) {
      engine->Truncate(sequence, 0);
    } else {
      const size_t count =
          1 + random() % std::min<size_t>(ids.size() - length, random() % 3 == 0 ? 90 : 4);
      const auto got =
          engine->Append(sequence, std::span(ids).subspan(length, count), Engine::Logits::kAll);
      ASSERT_TRUE(got) << got.error().message;
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(std::memcmp(got->row(i).data(), expected[length + i].data(),
                              expected[length + i].size() * sizeof(float)),
                  0)
            << "position " << length + i << ", " << count << " ids in the call";
    }
  }
}

TEST_P(BatchInvariance, RewindsAndForksGiveTheNumbersOfAFreshRun) {
  const Model model = Load(GetParam());
  for (const KvType kv : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ16, KvType::kQ8}) {
    SCOPED_TRACE(Name(kv));
    ExpectRewindsAreExact(model, {.threads = 2, .kv = kv, .kv_limit_bytes = 0});
  }
  SCOPED_TRACE("fp32 activations");
  ExpectRewindsAreExact(
      model,
      {.threads = 1, .activations = Activations::kF32, .kv = std::nullopt, .kv_limit_bytes = 0});
}

INSTANTIATE_TEST_SUITE_P(Models, BatchInvariance, testing::ValuesIn(kModels), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace lockstep

#include "engine/engine.h"

#include <algorithm>
#include <cstdlib>

#include "engine/kernels/kernel_table.h"
#include "engine/walk.h"

namespace lockstep {

struct Engine::State {
  const ModelSpec& spec;
  const KernelTable& kernels;
  Activations activations;
  ExecutionPlan plan;
  SpinPool pool;
  WalkBuffers buffers;
  std::vector<float> logits;
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(const ModelSpec& spec, const Weights& weights,
                                               const EngineOptions& options) {
  const char* wanted = std::getenv("LOCKSTEP_ISA");
  std::string_view problem;
  const KernelTable& kernels = ChooseKernels(wanted != nullptr ? wanted : "", problem);
  if (!problem.empty()) {
    std::string names;
    for (const KernelTable* table : KernelTables())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", table->name);
    return UsageError("LOCKSTEP_ISA is \"{}\": {}; there are {}", wanted, problem, names);
  }
  // Workers that wait for each other gain nothing from sharing a core.
  const int cores = AvailableCores();
  const int threads = options.threads > 0 ? std::min(options.threads, cores) : cores;
  ThreadPool packers(threads);
  return std::unique_ptr<Engine>(
      new Engine(std::unique_ptr<State>(new State{spec,
                                                  kernels,
                                                  options.activations,
                                                  MakePlan(spec, weights, packers),
                                                  SpinPool(threads),
                                                  {},
                                                  {}})));
}

EngineSequence Engine::NewSequence() const {
  EngineSequence sequence;
  sequence.layers.resize(state_->spec.layers.size());
  return sequence;
}

Result<MatrixView<const float>> Engine::Append(EngineSequence& sequence,
                                               std::span<const int32_t> ids, Logits wanted) {
  State& state = *state_;
  const ModelSpec& spec = state.spec;
  if (ids.empty()) return UsageError("there are no tokens to run; give at least one");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= spec.embedding.vocab_size)
      return UsageError("token {} of the input has id {}, but the vocabulary has ids 0 to {}", i,
                        ids[i], spec.embedding.vocab_size - 1);
  const int64_t length = sequence.length + static_cast<int64_t>(ids.size());
  const std::optional<int64_t> limit = PositionLimit(spec);
  if (limit && length > *limit)
    return UsageError(
        "the sequence would have {} tokens ({} held, {} new), but the model has {} positions; "
        "shorten "
        "the input or generate less",
        length, sequence.length, ids.size(), *limit);

  const auto vocab = static_cast<size_t>(spec.embedding.vocab_size);
  const auto padded = static_cast<size_t>(state.plan.head.group.matrices[0].Tiles() * kTileRows);
  const size_t rows = wanted == Logits::kAll ? ids.size() : wanted == Logits::kLast ? 1 : 0;
  state.logits.resize(rows * padded);
  constexpr size_t kChunk = 512;  // tokens that walk together: bounds the activations' memory
  for (size_t begin = 0; begin < ids.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, ids.size() - begin);
    const bool last = begin + count == ids.size();
    const size_t head_rows = wanted == Logits::kAll ? count : last ? rows : 0;
    float* logits =
        wanted == Logits::kAll ? state.logits.data() + begin * padded : state.logits.data();
    WalkCall call{.ids = ids.subspan(begin, count),
                  .first = sequence.length,
                  .length = length,
                  .sequence = &sequence,
                  .logits = logits,
                  .head_rows = static_cast<int64_t>(head_rows)};
    Walk(state.plan, state.kernels, state.activations, state.pool, state.buffers, call);
    sequence.length += static_cast<int64_t>(count);
  }
  return MatrixView<const float>(state.logits.data(), rows, vocab, padded);
}

void Engine::Truncate(EngineSequence& sequence, int64_t length) const {
  LS_CHECK(length >= 0 && length <= sequence.length, "{} of {}", length, sequence.length);
  if (sequence.length == 0) return;
  for (auto& layer : sequence.layers)
    for (std::vector<float>* rows : {&layer.k, &layer.v, &layer.conv})
      rows->resize(rows->size() / static_cast<size_t>(sequence.length) *
                   static_cast<size_t>(length));
  sequence.length = length;
}

const ExecutionPlan& Engine::plan() const { return state_->plan; }
const KernelTable& Engine::kernels() const { return state_->kernels; }
int Engine::threads() const { return state_->pool.num_threads(); }

}  // namespace lockstep

#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "engine/kernels/kernel_table.h"
#include "spec/rope_facts.h"

namespace lockstep {
namespace {

struct KvTypeName {
  KvType type;
  std::string_view name;
};
constexpr KvTypeName kKvTypeNames[] = {{KvType::kF32, "fp32"},
                                       {KvType::kF16, "fp16"},
                                       {KvType::kBF16, "bf16"},
                                       {KvType::kQ16, "q16"},
                                       {KvType::kQ8, "q8"}};

struct ActivationsName {
  Activations activations;
  std::string_view name;
};
constexpr ActivationsName kActivationsNames[] = {
    {Activations::kInt8, "int8"}, {Activations::kBF16, "bf16"}, {Activations::kF32, "fp32"}};

template <typename Row, size_t n>
constexpr std::array<std::string_view, n> NamesIn(const Row (&table)[n]) {
  std::array<std::string_view, n> names;
  for (size_t i = 0; i < n; ++i) names[i] = table[i].name;
  return names;
}
constexpr auto kNamesOfKvTypes = NamesIn(kKvTypeNames);
constexpr auto kNamesOfActivations = NamesIn(kActivationsNames);

// What each layer keeps of a position.
struct LayerMemory {
  KvShape shape;
  KvLayer layer;
};

LayerMemory MemoryOf(const AttentionSpec& a, KvType type, int64_t) {
  const KvShape shape{type, a.num_key_value_heads, a.head_dim, a.head_dim};
  std::optional<int64_t> window;
  if (a.sliding_window) window = std::min(*a.sliding_window, kLongestWindow);
  return {shape, {shape.PageBytes(), window}};
}
LayerMemory MemoryOf(const MlaSpec& a, KvType type, int64_t) {
  const KvShape shape{type, a.num_attention_heads, a.qk_nope_head_dim + a.qk_rope_head_dim,
                      a.v_head_dim};
  return {shape, {shape.PageBytes(), std::nullopt}};
}
// The convolution's inputs, as floats.
LayerMemory MemoryOf(const ShortConvSpec& c, KvType, int64_t hidden) {
  return {{}, {static_cast<size_t>(kPageTokens * hidden) * sizeof(float), c.kernel_size}};
}

std::vector<LayerMemory> MemoryOf(const ModelSpec& spec, KvType type) {
  std::vector<LayerMemory> all;
  for (const LayerSpec& layer : spec.layers)
    all.push_back(std::visit(
        [&](const auto& mixer) { return MemoryOf(mixer, type, spec.embedding.hidden_size); },
        layer.mixer));
  return all;
}

std::vector<KvShape> Shapes(std::span<const LayerMemory> layers) {
  std::vector<KvShape> shapes;
  for (const LayerMemory& layer : layers) shapes.push_back(layer.shape);
  return shapes;
}

std::vector<KvLayer> Layers(std::span<const LayerMemory> layers) {
  std::vector<KvLayer> all;
  for (const LayerMemory& layer : layers) all.push_back(layer.layer);
  return all;
}

}  // namespace

std::string_view Name(Activations activations) {
  return std::ranges::find(kActivationsNames, activations, &ActivationsName::activations)->name;
}

std::optional<Activations> ActivationsNamed(std::string_view name) {
  for (const ActivationsName& a : kActivationsNames)
    if (a.name == name) return a.activations;
  return std::nullopt;
}

std::span<const std::string_view> ActivationsNames() { return kNamesOfActivations; }

std::string_view Name(KvType type) {
  return std::ranges::find(kKvTypeNames, type, &KvTypeName::type)->name;
}

std::optional<KvType> KvTypeNamed(std::string_view name) {
  for (const KvTypeName& type : kKvTypeNames)
    if (type.name == name) return type.type;
  return std::nullopt;
}

std::span<const std::string_view> KvTypeNames() { return kNamesOfKvTypes; }

KvType ChooseKvType(const ExecutionPlan& plan, Activations activations) {
  const auto rounds = [&](const Projection& projection) {
    return std::ranges::any_of(projection.group.matrices, [&](const PackedMatrix& m) {
      return FormFor(activations, m.kind) != Activations::kF32;
    });
  };
  return std::ranges::any_of(plan.layers,
                             [&](const LayerPlan& layer) {
                               return rounds(layer.mixer_in) || rounds(layer.mixer_out);
                             })
             ? KvType::kQ16
             : KvType::kF32;
}

std::optional<int64_t> PositionLimit(const ModelSpec& spec) {
  if (spec.embedding.positions) return spec.embedding.positions->num_positions;
  if (StretchesWithLength(spec)) return std::nullopt;
  if (spec.max_position_embeddings <= 0) return std::nullopt;
  return spec.max_position_embeddings;
}

struct Engine::State {
  State(const ModelSpec& model, const Weights& weights, const KernelTable& table,
        const EngineOptions& options, int threads, ThreadPool& packers)
      : spec(model),
        kernels(table),
        activations(options.activations),
        plan(MakePlan(model, weights, packers)),
        kv_type(options.kv.value_or(ChooseKvType(plan, activations))),
        memory(MemoryOf(model, kv_type)),
        shapes(Shapes(memory)),
        cache(Layers(memory), options.kv_limit_bytes),
        pool(threads),
        buffers(plan, shapes, threads) {}

  const ModelSpec& spec;
  const KernelTable& kernels;
  Activations activations;
  ExecutionPlan plan;
  KvType kv_type;
  std::vector<LayerMemory> memory;
  std::vector<KvShape> shapes;
  KvCache cache;
  SpinPool pool;
  WalkBuffers buffers;
  Buffer<float> logits;
  // Of the walk at hand.
  std::vector<int32_t> ids, head_rows;
  std::vector<WalkSegment> segments;

  Status Check(const EngineStep& step) const;
  // The next at most kMaxWalkTokens tokens of `steps` from token `from` of step `at` on; moves
  // both.
  void Gather(std::span<const EngineStep> steps, size_t& at, size_t& from);
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<const KernelTable*> FindKernels(std::string_view name) {
  const bool given = !name.empty();
  if (const char* wanted = std::getenv("LOCKSTEP_ISA"); !given && wanted != nullptr) name = wanted;
  std::string_view problem;
  const KernelTable& kernels = ChooseKernels(name, problem);
  if (problem.empty()) return &kernels;
  std::string names;
  for (const KernelTable* table : KernelTables())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", table->name);
  return UsageError("{} is \"{}\": {}; there are {}", given ? "the engine's table" : "LOCKSTEP_ISA",
                    name, problem, names);
}

Result<std::unique_ptr<Engine>> Engine::Create(const ModelSpec& spec, const Weights& weights,
                                               const EngineOptions& options) {
  LS_TRY(const KernelTable* kernels, FindKernels(options.kernels));
  // Workers that wait for each other gain nothing from sharing a core.
  const int cores = AvailableCores();
  const int threads = options.threads > 0 ? std::min(options.threads, cores) : cores;
  try {
    ThreadPool packers(threads);
    return std::unique_ptr<Engine>(
        new Engine(std::make_unique<State>(spec, weights, *kernels, options, threads, packers)));
  } catch (const std::bad_alloc&) {
    return InputError(
        "the system has no memory left for the model's weights as the engine reads them and for "
        "its buffers; end other programs, or take a smaller model or one stored in fewer bits");
  }
}

KvSequence Engine::NewSequence() { return state_->cache.NewSequence(); }

Status Engine::State::Check(const EngineStep& step) const {
  if (step.ids.empty()) return UsageError("there are no tokens to run; give at least one");
  for (size_t i = 0; i < step.ids.size(); ++i)
    if (step.ids[i] < 0 || step.ids[i] >= spec.embedding.vocab_size)
      return UsageError("token {} of the input has id {}, but the vocabulary has ids 0 to {}", i,
                        step.ids[i], spec.embedding.vocab_size - 1);
  const int64_t held = step.sequence->length();
  const int64_t length = held + static_cast<int64_t>(step.ids.size());
  const std::optional<int64_t> limit = PositionLimit(spec);
  if (limit && length > *limit)
    return UsageError(
        "the sequence would have {} tokens ({} held, {} new), but the model has {} positions; "
        "shorten the input or generate less",
        length, held, step.ids.size(), *limit);
  return {};
}

void Engine::State::Gather(std::span<const EngineStep> steps, size_t& at, size_t& from) {
  ids.clear();
  head_rows.clear();
  segments.clear();
  while (at < steps.size() && static_cast<int64_t>(ids.size()) < kMaxWalkTokens) {
    const EngineStep& step = steps[at];
    const size_t count =
        std::min(step.ids.size() - from, static_cast<size_t>(kMaxWalkTokens) - ids.size());
    const int64_t held = step.sequence->length();
    // Rows of earlier walks are committed; what remains tells the length that the whole call has.
    segments.push_back({.sequence = step.sequence,
                        .row = static_cast<int64_t>(ids.size()),
                        .count = static_cast<int64_t>(count),
                        .first = held,
                        .length = held + static_cast<int64_t>(step.ids.size() - from)});
    for (size_t i = from; i < from + count; ++i) {
      if (step.wanted == Logits::kAll || (step.wanted == Logits::kLast && i + 1 == step.ids.size()))
        head_rows.push_back(static_cast<int32_t>(ids.size()));
      ids.push_back(step.ids[i]);
    }
    from += count;
    if (from < step.ids.size()) break;
    ++at;
    from = 0;
  }
}

Status Engine::Run(std::span<EngineStep> steps) {
  State& state = *state_;
  int64_t rows = 0;  // of logits
  const auto wanted = [](const EngineStep& step) {
    return step.wanted == Logits::kAll ? step.ids.size() : step.wanted == Logits::kLast ? 1 : 0;
  };
  size_t tokens = 0;
  for (const EngineStep& step : steps) {
    LS_RETURN_IF_ERROR(state.Check(step));
    rows += static_cast<int64_t>(wanted(step));
    tokens += step.ids.size();
    LS_CHECK(std::ranges::count(steps, step.sequence, &EngineStep::sequence) == 1,
             "a sequence takes part twice");
  }
  const auto vocab = static_cast<size_t>(state.spec.embedding.vocab_size);
  const int64_t width = WidthOf(state.plan.head);
  // All memory that grows with the call before its first token: what follows does not fail
  // half-way.
  try {
    const int64_t together = std::min(static_cast<int64_t>(tokens), kMaxWalkTokens);
    state.ids.reserve(static_cast<size_t>(together));
    state.head_rows.reserve(static_cast<size_t>(together));
    state.segments.reserve(steps.size());
    state.buffers.Reserve(together, std::min(rows, together));
    state.logits.Reserve(rows * width);
  } catch (const std::bad_alloc&) {
    return UsageError(
        "the system has no memory left to run {} tokens and return {} rows of logits; end other "
        "programs, run fewer tokens at once or ask for fewer logits",
        tokens, rows);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const Status extended =
        state.cache.Extend(*steps[i].sequence, static_cast<int64_t>(steps[i].ids.size()));
    if (extended) continue;
    for (size_t j = 0; j < i; ++j)
      state.cache.Truncate(*steps[j].sequence, steps[j].sequence->length());
    return extended;
  }
  float* logits = state.logits.data();
  for (size_t at = 0, from = 0; at < steps.size();) {
    state.Gather(steps, at, from);
    Walk(state.plan, state.kernels, state.activations, state.pool, state.buffers,
         {.ids = state.ids,
          .segments = state.segments,
          .shapes = state.shapes,
          .head_rows = state.head_rows,
          .logits = logits});
    logits += static_cast<int64_t>(state.head_rows.size()) * width;
    for (const WalkSegment& s : state.segments) state.cache.Commit(*s.sequence, s.count);
  }
  logits = state.logits.data();
  for (EngineStep& step : steps) {
    const size_t n = wanted(step);
    step.logits = MatrixView<const float>(logits, n, vocab, static_cast<size_t>(width));
    logits += static_cast<int64_t>(n) * width;
  }
  return {};
}

Result<MatrixView<const float>> Engine::Append(KvSequence& sequence, std::span<const int32_t> ids,
                                               Logits wanted) {
  EngineStep step{.sequence = &sequence, .ids = ids, .wanted = wanted, .logits = {}};
  LS_RETURN_IF_ERROR(Run({&step, 1}));
  return step.logits;
}

int64_t Engine::Truncate(KvSequence& sequence, int64_t length) {
  return state_->cache.Truncate(sequence, length);
}

const ExecutionPlan& Engine::plan() const { return state_->plan; }
const KernelTable& Engine::kernels() const { return state_->kernels; }
KvCache& Engine::cache() { return state_->cache; }
KvType Engine::kv_type() const { return state_->kv_type; }
int Engine::threads() const { return state_->pool.size(); }
std::string Engine::Describe() const {
  return fmt::format("engine, {} activations, {} keys and values, {}", Name(state_->activations),
                     Name(state_->kv_type), state_->kernels.name);
}

}  // namespace lockstep

// Engine: a model at speed. Same spec and weights as the reference, other arithmetic: packed
// weights, int8, bf16 or fp32 activations, one walk of all workers through the layers per call. How
// far its numbers may lie from the reference's is in docs/numerics.md.
//
// A sequence's numbers do not depend on the number of threads, on how it is cut into calls or on
// what runs beside it (but for dynamic RoPE and longrope, whose angles follow from the length of
// the call, as in the reference).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/matrix_view.h"
#include "engine/kv_cache.h"
#include "engine/plan.h"
#include "engine/walk.h"
#include "model/weights.h"
#include "spec/model_spec.h"

namespace lockstep {

// Tokens that walk together: bounds the activations' memory. Who wants to be asked in between
// (Ctrl-C, progress) gives a prompt in pieces of as many.
inline constexpr int64_t kMaxWalkTokens = 512;

struct EngineOptions {
  int threads = 0;  // 0: all cores; more than there are cores count as that many
  Activations activations = Activations::kInt8;
  // none: ChooseKvType.
  std::optional<KvType> kv;
  size_t kv_limit_bytes = 0;  // 0: no limit of our own
  std::string_view kernels;   // as in FindKernels
};

// The kernel table of that name; empty: the one that LOCKSTEP_ISA names, or the best that this
// processor runs.
Result<const KernelTable*> FindKernels(std::string_view name = {});

// "int8", "bf16", "fp32".
std::string_view Name(Activations activations);
std::optional<Activations> ActivationsNamed(std::string_view name);
std::span<const std::string_view> ActivationsNames();  // all, for who asks
// "fp32", "fp16", "bf16", "q16", "q8".
std::string_view Name(KvType type);
std::optional<KvType> KvTypeNamed(std::string_view name);
std::span<const std::string_view> KvTypeNames();

// What the cache holds unless told otherwise: q16 where int8 or bf16 activations meet the
// weights, whose error is far above what it adds; fp32 elsewhere.
KvType ChooseKvType(const ExecutionPlan& plan, Activations activations);

// The most positions a sequence may have: learned positions, or the context; none with dynamic
// RoPE.
std::optional<int64_t> PositionLimit(const ModelSpec& spec);

// What one sequence does in a call.
struct EngineStep {
  enum class Logits : uint8_t { kNone, kLast, kAll };

  KvSequence* sequence = nullptr;
  std::span<const int32_t> ids;  // appended
  Logits wanted = Logits::kLast;
  // Out: [0, 1 or ids.size(), vocab_size], valid until the next call.
  MatrixView<const float> logits;
};

class Engine {
 public:
  using Logits = EngineStep::Logits;

  // spec and weights must outlive the engine. Fails when LOCKSTEP_ISA names kernels that cannot
  // run.
  static Result<std::unique_ptr<Engine>> Create(const ModelSpec& spec, const Weights& weights,
                                                const EngineOptions& options);
  ~Engine();

  // Must not outlive the engine.
  KvSequence NewSequence();
  // All steps together; no sequence twice. On error nothing was appended to any. Weights that are
  // NaN or infinite make logits that are: the sampler then refuses to choose.
  Status Run(std::span<EngineStep> steps);
  // Run with one step.
  Result<MatrixView<const float>> Append(KvSequence& sequence, std::span<const int32_t> ids,
                                         Logits wanted = Logits::kLast);
  // As KvCache::Truncate: what is held, which may be less.
  int64_t Truncate(KvSequence& sequence, int64_t length);

  const ExecutionPlan& plan() const;
  const KernelTable& kernels() const;
  KvCache& cache();
  KvType kv_type() const;
  int threads() const;
  // "engine, int8 activations, q16 keys and values, avx512bf16"
  std::string Describe() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

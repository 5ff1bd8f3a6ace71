// Engine: a model at speed. Same spec and weights as the reference, other arithmetic: packed
// weights, int8 or fp32 activations, one walk of all workers through the layers per call. How far
// its numbers may lie from the reference's is in docs/numerics.md.
//
// Numbers do not depend on the number of threads or on how a sequence is cut into calls (but for
// dynamic RoPE and longrope, as in the reference).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/matrix_view.h"
#include "engine/plan.h"
#include "model/weights.h"
#include "spec/model_spec.h"

namespace lockstep {

struct KernelTable;

enum class Activations { kInt8, kF32 };  // kInt8: in front of matrices stored as codes

struct EngineOptions {
  int threads = 0;  // 0: all cores; more than there are cores count as that many
  Activations activations = Activations::kInt8;
};

// One sequence's memory, all positions of all layers.
struct EngineSequence {
  struct Layer {
    std::vector<float> k, v;  // [position][kv head][dim], k after RoPE
    std::vector<float> conv;  // [position][hidden]
  };
  std::vector<Layer> layers;
  int64_t length = 0;
};

// The most positions a sequence may have: learned positions, or the context; none with dynamic
// RoPE.
std::optional<int64_t> PositionLimit(const ModelSpec& spec);

class Engine {
 public:
  enum class Logits { kNone, kLast, kAll };

  // spec and weights must outlive the engine. Fails when LOCKSTEP_ISA names kernels that cannot
  // run.
  static Result<std::unique_ptr<Engine>> Create(const ModelSpec& spec, const Weights& weights,
                                                const EngineOptions& options);
  ~Engine();

  EngineSequence NewSequence() const;
  // As Interpreter::Append: logits [1 or ids.size(), vocab_size], valid until the next call.
  Result<MatrixView<const float>> Append(EngineSequence& sequence, std::span<const int32_t> ids,
                                         Logits wanted = Logits::kLast);
  void Truncate(EngineSequence& sequence, int64_t length) const;

  const ExecutionPlan& plan() const;
  const KernelTable& kernels() const;
  int threads() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

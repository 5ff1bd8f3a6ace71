// Int8Rounder: rounds what matrices multiply as onnxruntime's CPU kernels do, so that the reference
// computes what a graph with int8 activations computes. Per row and block of columns: scale =
// max|a| / 127, codes to nearest (com.microsoft MatMulNBits with accuracy_level 4, and QMoE's int8
// paths).
//
// A number that lies between two codes within float noise is a tie: the last bit of a sum decides,
// and from there on two correct programs round differently everywhere. Where the candidate's own
// numbers are known (TheirInputs) a tie falls as it fell there. Nothing else of theirs is taken: a
// number that is really another keeps its own code, so that a fault stays one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/weights.h"
#include "reference/rounder.h"

namespace lockstep {

// How far apart two numbers of a tie may be, in steps between codes (docs/numerics.md, "Quantized
// exports", has what was measured).
inline constexpr float kTieSteps = 1e-2f;

// What was rounded where both sides' numbers are known. Each is counted once, however many matrices
// multiply it.
struct TieCount {
  int64_t numbers = 0;
  int64_t ties = 0;     // they fell on another code in the reference, and were rounded as theirs
  int64_t others = 0;   // another code, and no tie: kept
  double widest = 0;    // of the ties: max |x - x'|, in steps
  double furthest = 0;  // of all numbers
  TieCount& operator+=(const TieCount& more);
};

// Of numbers that nobody sees in the candidate (inside an operator that rounds): those that lie in
// the middle between two codes but for `steps`, that share of a step, may have fallen either way.
struct HiddenTies {
  double steps = 0;
  bool flip = false;  // they fall the other way than here
};

// Where a graph rounds: by the matrix's place in the model, which an edit of its numbers leaves.
struct RoundedPlace {
  int64_t block = 0;  // columns that share a step
  std::string input;  // what the matrix multiplies, as the graph calls it; empty: no value of it
};
using RoundedPlaces = std::map<WeightId, RoundedPlace>;

// What the candidate multiplied along one sequence: rows of positions 0, 1, ...
class TheirInputs {
 public:
  TheirInputs() = default;
  TheirInputs(const TheirInputs&) = delete;
  TheirInputs& operator=(const TheirInputs&) = delete;
  // The next positions' rows of a value: [rows, columns] of the numbers given.
  void Append(const std::string& name, int64_t columns, std::span<const float> rows);
  // Forgets what was at positions from `length` on.
  void CutBack(int64_t length);

 private:
  friend class Int8Rounder;
  struct Value {
    size_t columns = 0;
    std::vector<float> rows;
  };
  // nullptr: not known.
  static const float* Row(const Value& value, int64_t position, size_t columns);

  std::map<std::string, Value> values_;
};

// Counts what was rounded along one sequence.
class TieCounter {
 public:
  // Over the first `positions`.
  TieCount Count(int64_t positions) const;
  // Hidden ties at the first `positions`.
  int64_t Hidden(int64_t positions) const;

 private:
  friend class Int8Rounder;
  std::vector<int64_t> hidden_;                       // by position
  std::map<const void*, std::vector<bool>> counted_;  // of each of their values, by position
  std::vector<TieCount> counts_;                      // by position
};

class Int8Rounder : public Rounder<float> {
 public:
  // For a model with these weights: their views are what it knows them by, so that they must stay
  // where they are. `theirs`: of the sequence that runs, filled already; nullptr: nothing is known
  // of it. Both are not owned; without a counter it may be used by several threads.
  Int8Rounder(const RoundedPlaces& places, const Weights& weights,
              const TheirInputs* theirs = nullptr, TieCounter* counter = nullptr,
              HiddenTies hidden = {});

  void Input(const WeightView& weight, bool head, std::span<const int64_t> positions,
             MatrixView<float> rows) const override;
  void Queries(size_t, MatrixView<float>) const override {}
  void Keys(size_t, MatrixView<float>) const override {}
  void Values(size_t, MatrixView<float>) const override {}
  void AttentionWeights(std::span<float>) const override {}

 private:
  struct Matrix {
    size_t block = 0;
    const TheirInputs::Value* theirs = nullptr;
  };
  std::map<const WeightView*, Matrix> matrices_;
  TieCounter* counter_;
  HiddenTies hidden_;
};

}  // namespace lockstep

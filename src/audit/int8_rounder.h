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
#include <memory>
#include <span>
#include <string>
#include <vector>

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

// What the candidate multiplied along one sequence: rows of positions 0, 1, ...
class TheirInputs {
 public:
  // `matrices`: where each lies -> the name of what it multiplies.
  explicit TheirInputs(const std::map<const std::byte*, std::string>& matrices);
  TheirInputs(const TheirInputs&) = delete;
  TheirInputs& operator=(const TheirInputs&) = delete;
  // The next positions' rows of a value: [rows, columns] of the numbers given.
  void Append(const std::string& name, int64_t columns, std::span<const float> rows);
  // Over the first `positions`.
  TieCount Count(int64_t positions) const;

 private:
  friend class Int8Rounder;
  struct Value {
    size_t columns = 0;
    std::vector<float> rows;
    std::vector<bool> counted;  // by position
  };
  // Absent: not known.
  const float* Row(const Value& value, int64_t position, size_t columns) const;

  std::map<std::string, Value> values_;
  std::map<const std::byte*, Value*> of_;
  std::vector<TieCount> counts_;  // by position
};

class Int8Rounder : public Rounder<float> {
 public:
  // Columns of a block, by where the matrix lies (WeightView::data). Others are not rounded.
  std::map<const std::byte*, int64_t> blocks;
  // Of the sequence that runs; not owned. nullptr: nothing is known of theirs.
  TheirInputs* theirs = nullptr;

  bool empty() const { return blocks.empty(); }
  void Input(const WeightView& weight, bool head, std::span<const int64_t> positions,
             MatrixView<float> rows) const override;
  void Queries(size_t, MatrixView<float>) const override {}
  void Keys(size_t, MatrixView<float>) const override {}
  void Values(size_t, MatrixView<float>) const override {}
  void AttentionWeights(std::span<float>) const override {}
};

}  // namespace lockstep

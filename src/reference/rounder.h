// Rounder: rounds intermediates of the reference on purpose, to measure what a program that keeps
// fewer bits does to the logits (docs/numerics.md, "Precision verdicts"). Without one nothing is
// rounded but by the arithmetic itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/matrix_view.h"
#include "model/weight_view.h"

namespace lockstep {

class Weights;

template <typename T>
class Rounder {
 public:
  virtual ~Rounder() = default;
  // Rows that are about to be multiplied with `weight`, and the position of each in its sequence;
  // `head`: those give logits.
  virtual void Input(const WeightView& weight, bool head, std::span<const int64_t> positions,
                     MatrixView<T> rows) const = 0;
  // Of attention, [position, heads * dim]: queries before they meet keys, keys and values as they
  // are kept; each head's part begins a new row of `dim`.
  virtual void Queries(size_t dim, MatrixView<T> rows) const = 0;
  virtual void Keys(size_t dim, MatrixView<T> rows) const = 0;
  virtual void Values(size_t dim, MatrixView<T> rows) const = 0;
  // The softmax' weights of one query.
  virtual void AttentionWeights(std::span<T> weights) const = 0;
  // What any operation gave: the embedding, a norm, a product with a weight (its bias added), an
  // activation, a rotation, attention, a scale, a sum. Nothing by default.
  virtual void Output(MatrixView<T>) const {}
  // Entries of a table of cosines or sines.
  virtual void Turns(std::span<float>) const {}
};

// What rounds a model with these weights, along one sequence, as another program does: for models
// whose weights are edited. It, and what it gives, may be used by several threads at once.
using RounderFor = std::function<std::unique_ptr<const Rounder<float>>(const Weights& weights)>;

}  // namespace lockstep

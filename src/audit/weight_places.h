// WeightPlaces: where a graph keeps each weight of the reference, and both as numbers by rows. What
// the comparison of weights and their mending look up. Inside this folder only.
#pragma once

#include <optional>
#include <string>

#include "audit/decoder.h"
#include "audit/graph.h"
#include "audit/weight_sums.h"
#include "model/model.h"

namespace lockstep {

// What multiplies: a norm's weight with its offset, rounded as the spec says. Reads `view` and
// `norm` later.
Rows OfReference(const WeightView& view, const NormSpec* norm);
Rows OfVector(const Graph& graph, const ConstantView& vector);
Rows OfMatrix(const Graph& graph, const StoredMatrix& matrix);

// The codes of one matrix, its zero points too, under the scales of another of the same layout.
Rows OfCodes(const Graph& graph, StoredMatrix codes, const StoredMatrix& scales);
// Both are kept as codes of the same layout, row by row in whole bytes.
bool AlikeKept(const Graph& graph, const StoredMatrix& a, const StoredMatrix& b);

class WeightPlaces {
 public:
  static constexpr WeightId kHead{Role::kLmHead, Part::kWeight, -1, -1};
  static constexpr WeightId kTable{Role::kEmbedTokens, Part::kWeight, -1, -1};

  // All must outlive it.
  WeightPlaces(const Model& reference, const Graph& graph, const FoundDecoder& decoder)
      : reference_(reference), graph_(graph), decoder_(decoder) {}

  const FoundDecoder& found() const { return decoder_; }
  // A head that is tied has no weight of its own in the reference.
  const WeightView& ReferenceOf(const WeightId& id) const;
  const NormSpec* NormOf(const WeightId& id) const;     // nullptr: no norm's weight
  const BlockCodes* CodesOf(const WeightId& id) const;  // nullptr: numbers
  // The graph's numbers in the weight's place; absent: none. `place_known`: the place was found.
  std::optional<Rows> Found(const WeightId& id, bool& place_known) const;
  // The head that reads the table of embeddings is no other weight.
  bool OneTable(const WeightId& id) const;

 protected:
  const Model& reference_;
  const Graph& graph_;
  const FoundDecoder& decoder_;
};

}  // namespace lockstep

// Storage: the type in which a graph keeps a number, and what that type leaves of another number.
// The one rule by which the audit's comparisons (facts, tables, weights) tell a number that is
// merely kept in 16 bits from another number. Inside this folder only.
#pragma once

#include "audit/decoder.h"
#include "audit/graph.h"

namespace lockstep {

// kNone: fp32 or wider, or no number at all.
Rounding RoundingOf(OnnxType type);
Rounding StorageOf(const Graph& graph, const ConstantView& view);
Rounding StorageOf(const Graph& graph, int constant);  // of a value; kNone where it is none

// Of the weight in this place: of a bias its own.
Rounding StorageOf(const Graph& graph, const FoundDecoder& found, const WeightId& id);

// How far two neighbours of this size lie apart in the type; 0 for kNone.
double StepOf(double size, Rounding storage);

// Equal, but for what going through fp32 leaves.
bool Same(double a, double b);
// `found` is `expected`, or `expected` as the type keeps it.
bool SameAsStored(double expected, double found, Rounding storage);

std::string_view StorageName(Rounding storage);  // "fp16", "bf16", "fp32"

}  // namespace lockstep

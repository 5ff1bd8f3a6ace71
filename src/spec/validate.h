// Validate: every invariant of a spec, checked once after loading or editing and relied on
// everywhere else. What a valid spec holds: sizes are positive and small enough that no count of
// weights overflows, heads and groups divide, lists have the lengths their rope asks for, numbers
// are finite.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "spec/model_spec.h"
#include "spec/run_spec.h"

namespace lockstep {

// Far above any model; below, products of two sizes and sums over layers stay within int64.
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;  // hidden, intermediate, heads * head_dim
inline constexpr int64_t kMaxRows = int64_t{1} << 31;   // vocabulary, positions
inline constexpr int64_t kMaxLayers = 10000;
inline constexpr int64_t kMaxExperts = int64_t{1} << 18;  // of all layers together
inline constexpr int64_t kMaxParameters = int64_t{1} << 56;

// The first broken invariant, as a sentence with its path, what is expected and what was found.
Status Validate(const ModelSpec& spec);

// Of a run: lengths that are positive and positions that stay small enough for any sum of them.
Status Validate(const RunSpec& run);

// Sentences about what is odd but can run: token ids outside the vocabulary, fewer learned
// positions than max_position_embeddings.
std::vector<std::string> Remarks(const ModelSpec& spec);

}  // namespace lockstep

// What the RoPE of a spec says about runs of different lengths. Asked by whoever cuts a sequence
// into calls, keeps a cache between them or bounds a length.
#pragma once

#include <algorithm>
#include <variant>

#include "spec/model_spec.h"

namespace lockstep {

// The RoPE of a layer, of either kind of attention; nullptr: the layer rotates nothing.
inline const RopeSpec* FindRope(const LayerSpec& layer) {
  if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
    return attention->rope ? &*attention->rope : nullptr;
  if (const auto* mla = std::get_if<MlaSpec>(&layer.mixer)) return &mla->rope;
  return nullptr;
}

// Some layer's scaling is one of `Scalings`.
template <typename... Scalings>
bool AnyRopeScaling(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    const RopeSpec* rope = FindRope(layer);
    return rope != nullptr && rope->scaling &&
           (std::holds_alternative<Scalings>(*rope->scaling) || ...);
  });
}

// Any length is one the RoPE was made for: dynamic scaling grows with it.
inline bool StretchesWithLength(const ModelSpec& spec) {
  return AnyRopeScaling<DynamicScaling>(spec);
}

// The frequencies follow from the length of the call, so that a token's numbers depend on how many
// tokens come with it: dynamic scaling, and longrope on both sides of its original length.
inline bool DependsOnCallLength(const ModelSpec& spec) {
  return AnyRopeScaling<DynamicScaling, LongRopeScaling>(spec);
}

}  // namespace lockstep

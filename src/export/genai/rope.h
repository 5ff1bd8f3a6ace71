// RoPE: tables of cosines and sines made of a spec, and the operator that turns queries and keys by
// them where attention does not do it itself.
#pragma once

#include <string>
#include <vector>

#include "export/genai/builder.h"

namespace lockstep::genai {

// inv_freq [rotary_dim / 2] below and beyond a longrope's original length; the same otherwise.
// Of a dynamic scaling: those of its original length.
std::vector<float> RopeFrequencies(const RopeSpec& rope, bool beyond_original);

// The tables of this rope, made once for all layers that share it.
RopeValues RopeTables(GraphBuilder& b, const RopeSpec& rope);

// The first rotary_dim elements of each head turned: x [B, S, heads * size].
std::string Rotated(GraphBuilder& b, const std::string& name, const std::string& x,
                    const RopeSpec& rope, int64_t heads, int64_t size);

}  // namespace lockstep::genai

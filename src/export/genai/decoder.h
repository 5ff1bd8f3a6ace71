// BuildDecoder: the graph of a whole decoder, from its spec alone: embedding, layers, head, and the
// inputs and outputs that ONNX Runtime GenAI expects.
#pragma once

#include "export/genai/builder.h"

namespace lockstep::genai {

// Positions that the exported model takes: the spec's, and for a RoPE that stretches with the
// length four times what its factor makes of them.
int64_t ContextLength(const ModelSpec& spec);
// Of the caches of every layer: the largest head, filled up to a multiple of 8; 0: none.
int64_t CacheHeadSize(const ModelSpec& spec);

void BuildDecoder(GraphBuilder& b);

}  // namespace lockstep::genai

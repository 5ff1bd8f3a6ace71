// The halves of a layer: each adds its nodes for x [B, S, H] and gives the name of its output
// [B, S, H].
#pragma once

#include <string>
#include <vector>

#include "export/genai/builder.h"

namespace lockstep::genai {

// Elements of a cached head: GroupQueryAttention wants a multiple of 8.
inline constexpr int64_t kHeadMultiple = 8;
int64_t HeadSize(const MixerSpec& mixer);  // of keys and values before padding; 0: none is cached

std::string Mix(GraphBuilder& b, const AttentionSpec& attention, int layer, const std::string& x);
std::string Mix(GraphBuilder& b, const MlaSpec& mla, int layer, const std::string& x);
std::string Mix(GraphBuilder& b, const ShortConvSpec& conv, int layer, const std::string& x);

std::string FeedForward(GraphBuilder& b, const MlpSpec& mlp, int layer, const std::string& x);
std::string FeedForward(GraphBuilder& b, const MoeSpec& moe, int layer, const std::string& x);

// --- Parts that several of them use ---

// GroupQueryAttention over the layer's cache. Queries [B, S, heads * cache_head_size], keys and
// values likewise; packed: all three in q, and k and v empty. The output is as wide as the queries.
struct AttentionCall {
  std::string q, k, v;
  int64_t heads = 0, kv_heads = 0;
  Scale scale;
  std::optional<int64_t> window;
  std::optional<double> softcap;
  const RopeSpec* rope = nullptr;  // that the operator applies; nullptr: none
  std::string sinks;               // [heads]; empty: none
};
std::string Attend(GraphBuilder& b, const std::string& name, int layer, const AttentionCall& call);

// activation(x), or of a gated MLP what takes its place: gate and up to what down multiplies.
std::string Activated(GraphBuilder& b, const std::string& name, Activation activation,
                      const std::string& x);
std::string Gated(GraphBuilder& b, const std::string& name, const MlpSpec& mlp,
                  const std::string& gate, const std::string& up);

// An MLP of its own: of a layer, or the shared expert.
struct MlpRoles {
  Role gate, up, down;
};
std::string Mlp(GraphBuilder& b, const std::string& name, const MlpSpec& mlp, const MlpRoles& roles,
                int layer, const std::string& x);

// The experts of each token and their weights, from the router's logits [T, experts].
struct Routing {
  std::string experts;  // [T, k] int64
  std::string weights;  // [T, k]
};
Routing Route(GraphBuilder& b, const std::string& name, const MoeSpec& moe, int layer,
              const std::string& logits);

}  // namespace lockstep::genai

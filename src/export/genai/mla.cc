// DeepSeek's latent attention with keys and values expanded, as GroupQueryAttention takes them:
// every head has its own, and values are padded to the width of the keys, since the runtime's
// caches have one size.
#include "export/genai/layers.h"
#include "export/genai/linear.h"
#include "export/genai/norm.h"
#include "export/genai/rope.h"

namespace lockstep::genai {

std::string Mix(GraphBuilder& b, const MlaSpec& a, int layer, const std::string& x) {
  const std::string name = fmt::format("/model/layers.{}/attn", layer);
  const int64_t heads = a.num_attention_heads, nope = a.qk_nope_head_dim;
  const int64_t rope = a.qk_rope_head_dim, value = a.v_head_dim, padded = b.cache_head_size;
  OnnxGraph& g = b.graph;

  std::string q;
  if (a.q_lora_rank) {
    std::string low = Linear(b, name + "/q_a_proj", x, Role::kQAProj, layer, a.bias);
    if (a.q_a_norm)
      low = Normed(b, name + "/q_a_layernorm", low, *a.q_a_norm, Role::kQANorm, layer,
                   *a.q_lora_rank);
    q = Linear(b, name + "/q_b_proj", low, Role::kQBProj, layer, false);
  } else {
    q = Linear(b, name + "/q_proj", x, Role::kQProj, layer, false);
  }
  const std::vector<std::string> q_parts = b.Split(
      name + "/q/Split", b.Reshape(name + "/q/heads", q, {0, 0, heads, nope + rope}), {nope, rope});
  const std::string q_flat = b.Reshape(name + "/q_rope/joined", q_parts[1], {0, 0, heads * rope});
  const std::string q_turned =
      b.Reshape(name + "/q_rope/heads", Rotated(b, name + "/q_rotary", q_flat, a.rope, heads, rope),
                {0, 0, heads, rope});
  q = g.Node(name + "/q/Concat", Onnx("Concat"), {q_parts[0], q_turned}, {{"axis", int64_t{-1}}});

  const std::string kv_a = Linear(b, name + "/kv_a_proj", x, Role::kKvAProj, layer, a.bias);
  const std::vector<std::string> latent =
      b.Split(name + "/kv_a/Split", kv_a, {a.kv_lora_rank, rope});
  const std::string normed = Normed(b, name + "/kv_a_layernorm", latent[0], a.kv_a_norm,
                                    Role::kKvANorm, layer, a.kv_lora_rank);
  const std::string kv_b = Linear(b, name + "/kv_b_proj", normed, Role::kKvBProj, layer, false);
  const std::vector<std::string> kv =
      b.Split(name + "/kv_b/Split",
              b.Reshape(name + "/kv_b/heads", kv_b, {0, 0, heads, nope + value}), {nope, value});
  // One rotated part that all heads share.
  const std::string k_turned = Rotated(b, name + "/k_rotary", latent[1], a.rope, 1, rope);
  const std::string k_one = b.Reshape(name + "/k_rope/one", k_turned, {0, 0, 1, rope});
  const std::string k_all =
      g.Node(name + "/k_rope/Expand", Onnx("Expand"), {k_one, g.Ints({1, 1, heads, 1})});
  std::string k =
      g.Node(name + "/k/Concat", Onnx("Concat"), {kv[0], k_all}, {{"axis", int64_t{-1}}});

  const auto joined = [&](const char* what, const std::string& part, int64_t size) {
    const std::string at = fmt::format("{}/{}_pad", name, what);
    return b.PadHeads(at, b.Reshape(at + "/flat", part, {0, 0, heads * size}), heads, size, padded);
  };
  AttentionCall call{.heads = heads, .kv_heads = heads, .scale = a.query_scale};
  call.q = joined("q", q, nope + rope);
  call.k = joined("k", k, nope + rope);
  call.v = joined("v", kv[1], value);
  b.Note(fmt::format(
      "latent attention: keys and values are cached expanded, {} heads of {} elements, instead of "
      "the {} of the latent vector",
      heads, padded, a.kv_lora_rank + rope));
  const std::string out =
      b.CutHeads(name + "/cut", Attend(b, name, layer, call), heads, padded, value);
  return Linear(b, name + "/o_proj", out, Role::kOProj, layer, a.bias);
}

}  // namespace lockstep::genai

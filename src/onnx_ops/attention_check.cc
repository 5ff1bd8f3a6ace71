// What a GroupQueryAttention node must look like on the CPU.
#include <algorithm>

#include "base/quoted.h"
#include "onnx_ops/attention.h"

namespace lockstep {
namespace {

Refusal CheckAttributes(const OpCall& call) {
  const int64_t window = IntOf(call, "local_window_size", -1);
  if (IntOf(call, "causal", 1) == 0 && window != -1)
    return LoadFails(call, "local_window_size is {} with causal=0; leave one of them out", window);
  if (window == 0)
    return Unsafe(call, "every row attends to nothing: output of zeros",
                  "local_window_size is 0; write -1 for no window, or a width");
  if (window < -1)
    return NotCovered(call, "local_window_size is {}; write -1 for no window, or a width", window);
  if (const float cap = FloatOf(call, "softcap", 0); !(cap >= 0))
    return Unsafe(call, "it is ignored: logits are not capped",
                  "softcap is {}, expected at least 0; write the cap, or leave it out", cap);
  for (const std::string_view name : {"num_heads", "kv_num_heads"})
    if (IntOf(call, name, 0) < 1)
      return LoadFails(call, "{} is {}, expected at least 1; write it", name, IntOf(call, name, 0));
  for (const std::string_view name : {"k_quant_type", "v_quant_type"})
    if (const std::string kind = StringOf(call, name, "NONE");
        kind != "NONE" && kind != "PER_TENSOR" && kind != "PER_CHANNEL")
      return NotCovered(call, "{} is {}, expected NONE, PER_TENSOR or PER_CHANNEL", name,
                        Quoted(kind));
  return {};
}

// Ranks, and the operands that come in pairs.
Refusal CheckOperands(const OpCall& call) {
  const Shape& query = In(call, kQuery)->shape;
  if (query.size() != 3)
    return LoadFails(call, "query has the shape {}, expected [B, S, Nq*D]; reshape it",
                     ShapeText(query));
  if ((In(call, kPastKey) != nullptr) != (In(call, kPastValue) != nullptr))
    return LoadFails(call, "one of past_key and past_value is left out; give both or neither");
  if (In(call, kQueryNorm) != nullptr || In(call, kKeyNorm) != nullptr)
    return BadArgument(call,
                       "q_norm_weight or k_norm_weight is given, which CUDA and WebGPU know and "
                       "the CPU does not; norm queries and keys by "
                       "SimplifiedLayerNormalization before this node");
  if ((In(call, kKey) != nullptr) != (In(call, kValue) != nullptr))
    return BadArgument(call,
                       "one of key and value is left out; give both, or neither and a packed "
                       "query");
  for (const auto& [slot, name] : {std::pair{kKey, "key"}, std::pair{kValue, "value"}})
    if (const OpTensor* t = In(call, slot); t != nullptr && t->shape.size() != 3)
      return BadArgument(call, "{} has the shape {}, expected [B, S, Nk*D]", name,
                         ShapeText(t->shape));
  for (const auto& [slot, name] : {std::pair{kPastKey, "past_key"}, {kPastValue, "past_value"}})
    if (const OpTensor* t = In(call, slot); t != nullptr && t->shape.size() != 4)
      return BadArgument(call, "{} has the shape {}, expected [B, Nk, P, D]", name,
                         ShapeText(t->shape));
  return {};
}

Refusal CheckHeads(const OpCall& call, const AttentionSizes& n) {
  const Shape& query = In(call, kQuery)->shape;
  if (n.heads % n.kv_heads != 0)
    return BadArgument(call,
                       "num_heads is {} and kv_num_heads {}; the first must be a multiple of "
                       "the second",
                       n.heads, n.kv_heads);
  const int64_t all = n.packed ? n.heads + 2 * n.kv_heads : n.heads;
  if (n.head_size < 1 || query[2] != all * n.head_size)
    return BadArgument(call, "query has {} columns, which do not divide into {} heads", query[2],
                       all);
  if (n.head_size % 8 != 0)
    return BadArgument(call,
                       "the head size is {}, expected a multiple of 8; pad the heads, or use "
                       "plain operators",
                       n.head_size);
  for (const auto& [slot, name] : {std::pair{kKey, "key"}, std::pair{kValue, "value"}})
    LS_REFUSE(HasShape(call, slot, name, {n.batch, n.sequence, n.kv_heads * n.head_size}));
  return {};
}

Refusal CheckCache(const OpCall& call, const AttentionSizes& n) {
  const OpTensor* key = In(call, kPastKey);
  if (n.windowed && (key == nullptr || IntOf(call, "local_window_size", -1) < 1))
    return BadArgument(call,
                       "sliding_window_cache is 1 without past_key or local_window_size; give "
                       "both");
  if (n.windowed && n.past < IntOf(call, "local_window_size", -1))
    return BadArgument(call,
                       "the window-sized cache has {} rows for a window of {}; give at least "
                       "as many",
                       n.past, IntOf(call, "local_window_size", -1));
  if (n.windowed && (In(call, kBias) != nullptr || In(call, kQuerySeqlens) != nullptr))
    return NotCovered(call,
                      "attention_bias or query_seqlens with sliding_window_cache; leave it out");
  if (key == nullptr) return {};
  if (n.past > 0 && (!Wanted(call, 1) || !Wanted(call, 2)))
    return Unsafe(
        call, "the cache is read where nobody wrote it: garbage",
        "past_key is given, but the node has no output present_key or present_value; give "
        "it both");
  const Shape expected{n.batch, n.kv_heads, n.past, n.head_size};
  LS_REFUSE(HasShape(call, kPastKey, "past_key", expected));
  LS_REFUSE(HasShape(call, kPastValue, "past_value", expected));
  if (key->type == OnnxType::kUInt8)
    return NotCovered(call, "the cache holds 4-bit codes (uint8); use int8 or floats");
  if (key->type != OnnxType::kInt8) {
    if (key->type != In(call, kQuery)->type)
      return LoadFails(call, "past_key is {} but query is {}; convert one", OnnxTypeName(key->type),
                       OnnxTypeName(In(call, kQuery)->type));
    return {};
  }
  for (const auto& [slot, name, kind] :
       {std::tuple{kKeyScale, "k_scale", StringOf(call, "k_quant_type", "NONE")},
        std::tuple{kValueScale, "v_scale", StringOf(call, "v_quant_type", "NONE")}}) {
    if (In(call, slot) == nullptr || kind == "NONE")
      return BadArgument(call, "the cache is int8, but {} or its quant_type is left out; give it",
                         name);
    LS_REFUSE(HasShape(call, slot, name,
                       kind == "PER_TENSOR" ? Shape{1} : Shape{1, n.kv_heads, 1, n.head_size}));
  }
  return {};
}

Refusal CheckRotary(const OpCall& call, const AttentionSizes& n) {
  if (IntOf(call, "do_rotary", 0) == 0) return {};
  const OpTensor* cos = In(call, kCos);
  const OpTensor* sin = In(call, kSin);
  if (cos == nullptr || sin == nullptr)
    return RunFails(call, OrtError::kFail,
                    "do_rotary is 1 without cos_cache and sin_cache; give "
                    "both");
  if (n.head_size % 16 != 0)
    return BadArgument(call,
                       "the head size is {}, and do_rotary needs a multiple of 16; rotate by "
                       "RotaryEmbedding before this node",
                       n.head_size);
  if (cos->shape.size() != 2 || cos->shape != sin->shape)
    return BadArgument(call, "cos_cache has the shape {} and sin_cache {}, expected [L, R/2] twice",
                       ShapeText(cos->shape), ShapeText(sin->shape));
  if (cos->shape[1] < 1 || cos->shape[1] > n.head_size / 2 || cos->shape[1] % 8 != 0)
    return BadArgument(call,
                       "cos_cache has {} columns, expected a multiple of 8 of at most {}; "
                       "rotate by RotaryEmbedding before this node",
                       cos->shape[1], n.head_size / 2);
  if (const OpTensor* positions = In(call, kPositions); positions != nullptr) {
    LS_REFUSE(HasShape(call, kPositions, "position_ids", {n.batch, n.sequence}));
    if (KnownValues(*positions))
      for (const int64_t p : IntegersOf(*positions))
        if (p < 0 || p >= cos->shape[0])
          return BadArgument(call,
                             "position_ids has {}, but the caches have {} rows; write longer "
                             "caches",
                             p, cos->shape[0]);
  }
  return {};
}

Refusal CheckTotal(const OpCall& call, const AttentionSizes& n, int64_t total) {
  if (!n.windowed) {
    if (total < n.sequence)
      return BadArgument(call,
                         "total_sequence_length is {}, but {} tokens are new; write their sum "
                         "with the past's",
                         total, n.sequence);
    if (total != n.past + n.sequence && total > n.past)
      return BadArgument(call,
                         "total_sequence_length is {}, expected {} (a growing cache) or at most "
                         "{} (a buffer)",
                         total, n.past + n.sequence, n.past);
  }
  if (const OpTensor* cos = In(call, kCos);
      cos != nullptr && IntOf(call, "do_rotary", 0) != 0 && cos->shape[0] < total)
    return BadArgument(call, "cos_cache has {} rows for {} tokens; write longer caches",
                       cos->shape[0], total);
  if (const OpTensor* bias = In(call, kBias); bias != nullptr) {
    const Shape& s = bias->shape;
    const bool fits = s.size() == 4 && (s[0] == 1 || s[0] == n.batch) &&
                      (s[1] == 1 || s[1] == n.heads) && s[2] == n.sequence && s[3] == total;
    if (!fits)
      return BadArgument(call,
                         "attention_bias has the shape {}, expected [1 or {}, 1 or {}, {}, {}]",
                         ShapeText(s), n.batch, n.heads, n.sequence, total);
  }
  return {};
}

// Where the tokens of sequence b begin; a first prompt reads its first position only and counts up.
Refusal CheckFirstPosition(const OpCall& call, const AttentionSizes& n, int64_t b, int64_t fresh) {
  const OpTensor* positions = In(call, kPositions);
  if (IntOf(call, "do_rotary", 0) == 0 || positions == nullptr || !KnownValues(*positions))
    return {};
  const int64_t first = IntegersOf(*positions)[static_cast<size_t>(b * n.sequence)];
  const int64_t rows = In(call, kCos)->shape[0];
  if (first > rows - fresh)
    return BadArgument(call,
                       "position_ids begins with {} for {} tokens, but the caches have {} rows; "
                       "write longer caches",
                       first, fresh, rows);
  return {};
}

Refusal CheckSeqlens(const OpCall& call, const AttentionSizes& n, int64_t total) {
  const OpTensor* seqlens = In(call, kSeqlens);
  const OpTensor* queries = In(call, kQuerySeqlens);
  if (!KnownValues(*seqlens) || (queries != nullptr && !KnownValues(*queries))) return {};
  const auto last = IntegersOf(*seqlens);
  const auto valid = queries != nullptr ? IntegersOf(*queries) : std::vector<int64_t>();
  const int64_t present = n.windowed ? total : std::max(n.past, total);
  for (int64_t b = 0; b < n.batch; ++b) {
    const int64_t tokens = last[static_cast<size_t>(b)] + 1;
    if (tokens < 1 || tokens > present)
      return BadArgument(call,
                         "seqlens_k[{}] is {}, expected the tokens so far minus 1, in [0, {})", b,
                         tokens - 1, present);
    if (tokens > total)
      return NotCovered(call,
                        "seqlens_k[{}] is {}, which is past total_sequence_length {}; write the "
                        "batch's most",
                        b, tokens - 1, total);
    if (n.windowed && tokens < n.sequence)
      return NotCovered(call, "seqlens_k[{}] is {} with {} new tokens and a window-sized cache", b,
                        tokens - 1, n.sequence);
    if (queries == nullptr) {
      const int64_t past = std::max<int64_t>(0, tokens - n.sequence);
      if (past > 0 && n.sequence > 1 && n.batch != 1)
        return BadArgument(call,
                           "{} sequences of {} tokens meet a past; give them one by one, or say "
                           "query_seqlens",
                           n.batch, n.sequence);
      if (past == 0) LS_REFUSE(CheckFirstPosition(call, n, b, std::min(tokens, n.sequence)));
      continue;
    }
    const int64_t fresh = valid[static_cast<size_t>(b)];
    if (fresh < 0 || fresh > n.sequence || fresh > tokens || tokens - fresh > n.past)
      return BadArgument(call,
                         "query_seqlens[{}] is {}, expected at most {} and the {} tokens so far", b,
                         fresh, n.sequence, tokens);
  }
  return {};
}

}  // namespace

AttentionSizes AttentionSizesOf(const OpCall& call) {
  const Shape& query = In(call, kQuery)->shape;
  AttentionSizes n{.batch = query[0],
                   .sequence = query[1],
                   .heads = IntOf(call, "num_heads", 1),
                   .kv_heads = IntOf(call, "kv_num_heads", 1),
                   .head_size = 0,
                   .packed = In(call, kKey) == nullptr,
                   .past = 0,
                   .windowed = IntOf(call, "sliding_window_cache", 0) != 0};
  n.head_size = query[2] / (n.packed ? n.heads + 2 * n.kv_heads : n.heads);
  if (const OpTensor* past = In(call, kPastKey)) n.past = past->shape[2];
  return n;
}

Refusal CheckGroupQueryAttention(const OpCall& call) {
  LS_REFUSE(NoBFloat16(call));
  LS_REFUSE(CheckAttributes(call));
  LS_REFUSE(CheckOperands(call));
  constexpr int64_t kMaxHeads = 1 << 20;
  if (IntOf(call, "num_heads", 1) > kMaxHeads || IntOf(call, "kv_num_heads", 1) > kMaxHeads)
    return BadArgument(call, "num_heads or kv_num_heads is above {}", kMaxHeads);
  const AttentionSizes n = AttentionSizesOf(call);
  LS_REFUSE(CheckHeads(call, n));
  LS_REFUSE(CheckCache(call, n));
  LS_REFUSE(CheckRotary(call, n));
  if (const int64_t mode = IntOf(call, "qk_output", 0); mode < 0 || mode > 2)
    return BadArgument(call, "qk_output is {}, expected 0, 1 (before the softmax) or 2 (after it)",
                       mode);
  if (Wanted(call, 3) && (IntOf(call, "qk_output", 0) == 0 || n.windowed))
    return NotCovered(call,
                      "output_qk is asked for without qk_output, or with a window-sized cache; "
                      "leave it out");
  LS_REFUSE(HasShape(call, kSink, "head_sink", {n.heads}));
  for (const auto& [slot, name] :
       {std::pair{kSeqlens, "seqlens_k"}, {kQuerySeqlens, "query_seqlens"}})
    if (const OpTensor* t = In(call, slot); t != nullptr && ElementsOf(t->shape) != n.batch)
      return BadArgument(call, "{} has the shape {}, expected [{}]", name, ShapeText(t->shape),
                         n.batch);
  const OpTensor* total = In(call, kTotal);
  if (ElementsOf(total->shape) != 1)
    return BadArgument(call, "total_sequence_length has the shape {}, expected one number",
                       ShapeText(total->shape));
  if (!KnownValues(*total)) return {};
  const int64_t tokens = IntegersOf(*total)[0];
  LS_REFUSE(CheckTotal(call, n, tokens));
  return CheckSeqlens(call, n, tokens);
}

}  // namespace lockstep

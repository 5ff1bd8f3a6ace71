// RotaryEmbedding (com.microsoft, and ai.onnx 23 with its slots in another order): rotates the
// heads of [B, S, N*D] or [B, N, S, D].
//
//   position_ids  [B, S], or [1]: the first token's, counted up
//   caches        [L, R/2], R = rotary_embedding_dim or the head's size
//
// Without num_heads a head is twice as wide as the caches. `scale` has no effect on the CPU.
#include "onnx_ops/operators.h"
#include "onnx_ops/rotate.h"

namespace lockstep {
namespace {

struct Slots {
  size_t input, positions, cos, sin;
};
Slots SlotsOf(const OpCall& call) {
  if (call.domain.empty()) return {.input = 0, .positions = 3, .cos = 1, .sin = 2};
  return {.input = 0, .positions = 1, .cos = 2, .sin = 3};
}

struct Sizes {
  int64_t batch, sequence, heads, head_size;
};
Sizes SizesOf(const OpCall& call) {
  const Slots slots = SlotsOf(call);
  const Shape& x = In(call, slots.input)->shape;
  if (x.size() == 4) return {.batch = x[0], .sequence = x[2], .heads = x[1], .head_size = x[3]};
  const int64_t heads = IntOf(call, "num_heads", 0);
  const int64_t head_size = heads > 0 ? x[2] / heads : 2 * In(call, slots.cos)->shape[1];
  return {.batch = x[0], .sequence = x[1], .heads = x[2] / head_size, .head_size = head_size};
}

Refusal CheckPositions(const OpCall& call, const OpTensor& positions, const Sizes& s,
                       int64_t rows) {
  const bool offset = positions.shape == Shape{1};
  if (!offset && positions.shape != Shape{s.batch, s.sequence})
    return BadArgument(call, "position_ids has the shape {}, expected [{}, {}] or [1]; write it so",
                       ShapeText(positions.shape), s.batch, s.sequence);
  if (!KnownValues(positions)) return {};
  for (const int64_t p : IntegersOf(positions)) {
    const int64_t last = offset ? s.sequence - 1 : 0;
    if (p < 0 || p >= rows - last)
      return BadArgument(call,
                         "position_ids has {}, but the caches have {} rows; write longer "
                         "caches",
                         p, rows);
  }
  return {};
}

}  // namespace

Refusal CheckRotaryEmbedding(const OpCall& call) {
  LS_REFUSE(NoBFloat16(call));
  const Slots slots = SlotsOf(call);
  const Shape& x = In(call, slots.input)->shape;
  const Shape& cos = In(call, slots.cos)->shape;
  const int64_t heads = IntOf(call, "num_heads", 0);
  const int64_t partial = IntOf(call, "rotary_embedding_dim", 0);
  if (!call.domain.empty() && partial > 0 && heads <= 0)
    return LoadFails(call, "rotary_embedding_dim is {} without num_heads; write num_heads",
                     partial);
  if (IntOf(call, "is_packed_batching", 0) != 0)
    return NotCovered(call, "is_packed_batching is not 0; leave it out");
  if (In(call, slots.positions) == nullptr)
    return NotCovered(call, "position_ids is left out; give it");
  if (x.size() != 3 && x.size() != 4)
    return BadArgument(call, "the input has the shape {}, expected 3 or 4 dimensions; reshape it",
                       ShapeText(x));
  if (cos.size() != 2 || cos[1] < 1)
    return BadArgument(call, "cos_cache has the shape {}, expected [L, R/2]", ShapeText(cos));
  LS_REFUSE(HasShape(call, slots.sin, "sin_cache", cos));
  if (x.back() < 1) return BadArgument(call, "the input has no columns; give heads");
  if (x.size() == 3 && (heads > 0 ? x[2] % heads : x[2] % (2 * cos[1])) != 0)
    return BadArgument(call,
                       "the input's {} columns do not divide into heads; mend num_heads or the "
                       "caches",
                       x[2]);
  const Sizes s = SizesOf(call);
  const int64_t rotated = partial > 0 ? partial : s.head_size;
  if (rotated > s.head_size || rotated != 2 * cos[1])
    return BadArgument(call,
                       "cos_cache has {} columns, but {} elements of a head of {} are rotated; "
                       "write half as many",
                       cos[1], rotated, s.head_size);
  if (s.sequence > cos[0])
    return RunFails(call, OrtError::kRuntimeException,
                    "there are {} tokens, but the caches have {} rows; write longer caches",
                    s.sequence, cos[0]);
  return CheckPositions(call, *In(call, slots.positions), s, cos[0]);
}

Result<OpResults> RunRotaryEmbedding(const OpCall& call, const OpOptions&) {
  const Slots slots = SlotsOf(call);
  const Sizes n = SizesOf(call);
  const OpTensor* input = In(call, slots.input);
  const bool offset = In(call, slots.positions)->shape == Shape{1};
  const std::vector<int64_t> positions = IntegersOf(*In(call, slots.positions));
  const RotaryCaches caches{.cos = FloatsOf(*In(call, slots.cos)),
                            .sin = FloatsOf(*In(call, slots.sin)),
                            .half = In(call, slots.cos)->shape[1],
                            .interleaved = IntOf(call, "interleaved", 0) != 0};
  std::vector<float> y = FloatsOf(*input);
  const bool head_major = input->shape.size() == 4;
  for (int64_t b = 0; b < n.batch; ++b)
    for (int64_t s = 0; s < n.sequence; ++s) {
      const int64_t position =
          offset ? positions[0] + s : positions[static_cast<size_t>(b * n.sequence + s)];
      for (int64_t h = 0; h < n.heads; ++h) {
        const int64_t at =
            head_major ? (b * n.heads + h) * n.sequence + s : (b * n.sequence + s) * n.heads + h;
        Rotate(caches, position, y.data() + at * n.head_size);
      }
    }
  OpResults results;
  results.emplace_back(ValueOf(input->type, input->shape, y));
  return results;
}

}  // namespace lockstep

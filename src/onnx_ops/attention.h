// What the two files of GroupQueryAttention share: its slots, and its sizes as attributes and
// shapes say them.
#pragma once

#include <cstdint>

#include "onnx_ops/operators.h"

namespace lockstep {

enum AttentionSlot : uint8_t {
  kQuery = 0,
  kKey = 1,
  kValue = 2,
  kPastKey = 3,
  kPastValue = 4,
  kSeqlens = 5,
  kTotal = 6,
  kCos = 7,
  kSin = 8,
  kPositions = 9,
  kBias = 10,
  kSink = 11,
  kKeyScale = 12,
  kValueScale = 13,
  kQueryNorm = 14,
  kKeyNorm = 15,
  kQuerySeqlens = 16,
};

struct AttentionSizes {
  int64_t batch, sequence, heads, kv_heads, head_size;
  bool packed;    // query holds key and value as well
  int64_t past;   // rows of past_key; 0 without one
  bool windowed;  // sliding_window_cache: rows are the last positions, not the first
};
// Of a call whose ranks are right and whose numbers of heads are positive.
AttentionSizes AttentionSizesOf(const OpCall& call);

// Tokens that a window-sized cache of `capacity` rows holds after `total` tokens: all of them while
// they fit, then it drops capacity - window + 1 at a time.
inline int64_t ResidentRows(int64_t total, int64_t capacity, int64_t window) {
  const int64_t step = capacity - window + 1;
  return total <= capacity ? total : total - step * CeilDiv(total - capacity, step);
}

}  // namespace lockstep

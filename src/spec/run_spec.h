// RunSpec: what a run fixes besides the model. The first half is what a run is free to choose: the
// same spec and prompt must give the same logits under every choice (up to kv_dtype's rounding).
// The second half is what a run can get wrong without any fact of the model being wrong: the order
// and the precision of its steps, its mask and its cache. All of it is off by default; a fault
// (faults/) turns one of them on, and the reference then computes as that runtime does.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/model_spec.h"

namespace lockstep {

enum class PaddingSide : uint8_t { kLeft, kRight };

// Rows of padding tokens around the prompt, masked; they take no position.
struct Padding {
  PaddingSide side = PaddingSide::kLeft;
  int64_t length = 0;  // tokens of padding
  bool operator==(const Padding&) const = default;
};

// What the keys and values of the cache are rounded to.
enum class KvDType : uint8_t { kF64, kF32, kF16, kBF16 };

// How a call of several tokens after a cache is masked: F19.
enum class CausalAlignment : uint8_t {
  kEnd,    // the call's last token sees everything: token t of the call sees first + t
  kStart,  // the mask's corner is at the cache's first key: token t of the call sees 0 .. t
};

// What a sliding layer's cache, a ring of `sliding_window` rows, holds once it is full: F37.
enum class RingCache : uint8_t {
  kExact,
  kOneShort,  // the newest row overwrites one that is still seen: window - 1 positions are left
  kStuck,     // the ring never turns: the first window - 1 positions and the present one
};

// What a later call finds of the calls before it: F38.
enum class CacheState : uint8_t {
  kKept,
  kConvLost,  // short convolutions begin each call with zeros
  kKvLost,    // attention sees the call's own keys only
  kRowStale,  // the first row of a call keeps the keys and values of the row before it
};

struct RunSpec {
  std::optional<int64_t> chunk_size;  // tokens of the prompt per forward pass; absent: all at once
  std::optional<Padding> padding;     // absent: the prompt alone
  int64_t first_position = 0;         // position id of the prompt's first token
  bool cache = true;  // false: every step runs the whole sequence again, without a key-value cache
  KvDType kv_dtype = KvDType::kF32;
  // A call sees its own keys and values as they are, and rounded only what earlier calls left: a
  // graph whose cache is narrower than its numbers.
  bool kv_rounded_after_call = false;

  // --- What can be wrong; each at its right value by default ---

  Rounding residual_rounding = Rounding::kNone;     // of the residual stream, after each sum (F16)
  Rounding norm_cast = Rounding::kNone;             // of x / rms before the weight, RMS norms (F14)
  Rounding inverse_rms_rounding = Rounding::kNone;  // of 1 / rms, or 1 / deviation (F15)
  bool qk_norm_after_rope = false;                  // q_norm and k_norm follow RoPE
  bool softcap_after_mask = false;  // a masked score becomes -cap instead of -inf (F18)
  std::optional<double> mask_fill;  // what a masked score is set to; absent: -inf
  CausalAlignment causal_alignment = CausalAlignment::kEnd;
  bool padding_takes_positions = false;  // padding on the left moves the prompt's positions (F25)
  RingCache ring_cache = RingCache::kExact;
  CacheState cache_state = CacheState::kKept;
  bool operator==(const RunSpec&) const = default;

  // Where a sequence is cut into calls changes its numbers.
  bool DependsOnCalls() const {
    return causal_alignment != CausalAlignment::kEnd || ring_cache != RingCache::kExact ||
           cache_state != CacheState::kKept || kv_rounded_after_call;
  }
  // Position id of the prompt's first token, all told.
  int64_t FirstPosition() const {
    const bool shifted = padding_takes_positions && padding && padding->side == PaddingSide::kLeft;
    return first_position + (shifted ? padding->length : 0);
  }
};

constexpr int64_t KvElementSize(KvDType dtype) {  // bytes
  switch (dtype) {
    case KvDType::kF64:
      return 8;
    case KvDType::kF32:
      return 4;
    case KvDType::kF16:
    case KvDType::kBF16:
      return 2;
  }
  return 0;
}

}  // namespace lockstep

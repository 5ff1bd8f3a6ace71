// RunSpec: what a run fixes besides the model. The same spec and prompt must give the same logits
// under every RunSpec (up to kv_dtype's rounding); faults that hide in padding, chunking or the
// cache show as a difference between two of them.
#pragma once

#include <cstdint>
#include <optional>

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

struct RunSpec {
  std::optional<int64_t> chunk_size;  // tokens of the prompt per forward pass; absent: all at once
  std::optional<Padding> padding;     // absent: the prompt alone
  int64_t first_position = 0;         // position id of the prompt's first token
  bool cache = true;  // false: every step runs the whole sequence again, without a key-value cache
  KvDType kv_dtype = KvDType::kF32;
  bool operator==(const RunSpec&) const = default;
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

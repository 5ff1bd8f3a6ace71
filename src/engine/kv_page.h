// KvPage: how keys and values of kPageTokens consecutive positions of one layer lie in memory. A
// page begins at a multiple of kPageTokens, so that attention meets the same blocks in the same
// order however a sequence was cut into calls.
//
// A page holds, for each key/value head, its keys and then its values:
//   keys    4 tiles of 16 positions. A tile holds, for each element of the key, 16 lanes, one per
//           position: scores come out 16 at a time without a sum across lanes.
//             f32, f16  [key_dim][16]
//             bf16      [key_dim / 2][16][2]: the pairs that the bf16 dot product takes
//             q16       s16 [key_dim / 2][16][2], then f32 scales [key_dim / 32][16]
//             q8        s8 [key_dim][16], then f32 scales [key_dim / 32][16]
//   values  f32, f16  [64][value_dim]
//           bf16, q16 bf16 [32][value_dim][2]: pairs of positions
//           q8        s8 [64][value_dim], then f32 scales [64][value_dim / 32]
// key_dim is rounded up to 2, value_dim to 16, blocks of 32 up; what rounding adds is zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

inline constexpr int64_t kPageTokens = 64;

// q16: keys as 14-bit codes with a scale for each 32 elements. They cost what bf16 costs to read
// and to multiply and lie 10 times closer: scores pass through an exponential, so that bf16's 8
// bits of a key show in the logits, while those of a value average out.
enum class KvType : uint8_t { kF32, kF16, kBF16, kQ16, kQ8 };

struct KvShape {
  KvType type = KvType::kF32;
  int64_t heads = 0;  // of keys and values
  int64_t key_dim = 0;
  int64_t value_dim = 0;

  // Always inline, in every build: kernels call them, and what is compiled there with flags of one
  // instruction set must not be merged with other objects' (tools/check_kernel_symbols.sh).
  [[gnu::always_inline]] constexpr int64_t PaddedKeyDim() const { return (key_dim + 1) / 2 * 2; }
  [[gnu::always_inline]] constexpr int64_t PaddedValueDim() const {
    return (value_dim + 15) / 16 * 16;
  }
  // Bytes of one head's keys or values in a page, a multiple of 64.
  [[gnu::always_inline]] constexpr size_t KeyBytes() const { return Bytes(PaddedKeyDim(), type); }
  [[gnu::always_inline]] constexpr size_t ValueBytes() const {
    return Bytes(PaddedValueDim(), type == KvType::kQ16 ? KvType::kBF16 : type);
  }
  [[gnu::always_inline]] constexpr size_t HeadBytes() const { return KeyBytes() + ValueBytes(); }
  [[gnu::always_inline]] constexpr size_t PageBytes() const {
    return static_cast<size_t>(heads) * HeadBytes();
  }

 private:
  [[gnu::always_inline]] static constexpr size_t Bytes(int64_t dim, KvType type) {
    const int64_t width = type == KvType::kF32 ? 4 : type == KvType::kQ8 ? 1 : 2;
    const bool scaled = type == KvType::kQ8 || type == KvType::kQ16;
    return static_cast<size_t>(kPageTokens * (width * dim + (scaled ? (dim + 31) / 32 * 4 : 0)));
  }
};

struct KvPage;  // the cache's own

// One entry of a sequence's page table.
struct KvPageRef {
  std::byte* data = nullptr;  // nullptr: dropped
  KvPage* page = nullptr;     // counts the references
};

}  // namespace lockstep

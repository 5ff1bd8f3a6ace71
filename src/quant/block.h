// What every block format needs: unaligned loads from a block's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace lockstep {

template <typename T>
T LoadAs(const std::byte* source) {
  T x;
  std::memcpy(&x, source, sizeof x);
  return x;
}

// The fp16 scale of a block, as a float.
inline float LoadHalf(const std::byte* source) { return ToFloat(LoadAs<float16>(source)); }

// A block's bytes as small integers, which arithmetic needs.
inline const uint8_t* Bytes(const std::byte* source) {
  return reinterpret_cast<const uint8_t*>(source);
}
inline const int8_t* SignedBytes(const std::byte* source) {
  return reinterpret_cast<const int8_t*>(source);
}

}  // namespace lockstep

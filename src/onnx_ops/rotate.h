// The rotation that RotaryEmbedding and GroupQueryAttention share: the first 2 * half elements of a
// head, by a row of cos and sin caches [L, half].
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct RotaryCaches {
  std::vector<float> cos, sin;  // [L, half]
  int64_t half = 0;
  bool interleaved = false;  // pairs (0, 1), (2, 3), ...; else (0, half), (1, half + 1), ...
};

inline void Rotate(const RotaryCaches& caches, int64_t position, float* head) {
  for (int64_t i = 0; i < caches.half; ++i) {
    float& first = caches.interleaved ? head[2 * i] : head[i];
    float& second = caches.interleaved ? head[2 * i + 1] : head[caches.half + i];
    const double c = caches.cos[static_cast<size_t>(position * caches.half + i)];
    const double s = caches.sin[static_cast<size_t>(position * caches.half + i)];
    const double a = first, b = second;
    first = static_cast<float>(a * c - b * s);
    second = static_cast<float>(a * s + b * c);
  }
}

}  // namespace lockstep

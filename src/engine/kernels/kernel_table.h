// KernelTable: the engine's inner loops for one instruction set. Each table is kernels.inc
// compiled once with other flags (kernels_*.cc); ChooseKernels picks the best that this processor
// runs, or the one that LOCKSTEP_ISA names. A plain twin of each is in kernels_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/kernels/packed.h"

namespace lockstep {

// The most tokens one call of a tile kernel takes: 12 integer and 12 float sums, 8 weights leave no
// spill that matters in 32 registers.
inline constexpr int kMaxTileTokens = 12;

struct KernelTable {
  std::string_view name;  // "avx512vnni"
  std::string_view description;
  bool (*runs_here)();

  // One tile of weights (16 outputs) against `tokens` <= kMaxTileTokens rows of activations:
  // y[t * y_stride + r], r < 16. A token's 16 sums are the same operations whatever `tokens` is.
  void (*tile_int8)(PackedKind kind, const std::byte* tile, int64_t blocks,
                    const QuantizedActivations& x, int64_t first_token, int tokens, float* y,
                    int64_t y_stride);
  // The same with fp32 activations [token][blocks * 32], zero beyond the matrix' columns.
  void (*tile_f32)(PackedKind kind, const std::byte* tile, int64_t blocks, const float* x,
                   int64_t x_stride, int tokens, float* y, int64_t y_stride);
  // n floats, a multiple of 32, to codes, scales (n / 32) and sums (n / 16).
  void (*quantize)(const float* x, int64_t n, int8_t* codes, float* scales, float* sums);

  // y = x / sqrt(mean(x^2) + eps) * w; x and y may be the same.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* y);
  // gate <- silu(gate) * up
  void (*silu_mul)(const float* up, int64_t n, float* gate);
  void (*gelu_tanh_mul)(const float* up, int64_t n, float* gate);
  // scores[i] = q . keys[i]
  void (*scores)(const float* q, const float* keys, int64_t stride, int64_t n, int64_t dim,
                 float* scores);
  // softmax in place; returns nothing odd for n >= 1. extra: an attention sink or nullptr.
  void (*softmax)(float* x, int64_t n, const float* extra);
  void (*weighted_sum)(const float* weights, const float* values, int64_t stride, int64_t n,
                       int64_t dim, float* out);
};

std::span<const KernelTable* const> KernelTables();  // best first
// Error text in `problem` (empty: fine) when LOCKSTEP_ISA names no table or one that does not run
// here.
const KernelTable& ChooseKernels(std::string_view wanted, std::string_view& problem);

}  // namespace lockstep

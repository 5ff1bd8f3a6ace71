// KernelTable: the engine's inner loops for one instruction set. Each table is kernels.inc
// compiled once with other flags (kernels_*.cc); ChooseKernels picks the best that this processor
// runs, or the one that LOCKSTEP_ISA names. A plain twin of each is in
// engine/kernel_twins.h, and kernels_test.cc holds them against each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/kernels/packed.h"
#include "engine/kv_page.h"

namespace lockstep {

// What one call of `attention` computes: some neighbouring queries of some heads that share one
// key/value head. A query at position p sees the keys of positions max(0, p + 1 - window) .. p.
struct AttentionCall {
  KvShape shape;
  const KvPageRef* pages;  // [position / kPageTokens]; what no query reaches may be dropped
  int64_t kv_head;
  int64_t first;    // position of the first query
  int64_t queries;  // queries * heads <= kAttentionRows
  int64_t heads;
  const float* q;  // q[t * q_token_stride + h * q_head_stride + d]
  int64_t q_token_stride, q_head_stride;
  float scale;         // of the scores
  int64_t window;      // 0: none
  float softcap;       // 0: none
  const float* sinks;  // [heads], or nullptr
  float* out;          // out[t * out_token_stride + h * out_head_stride + d]
  int64_t out_token_stride, out_head_stride;
  std::byte* scratch;  // AttentionScratchBytes, 64-byte aligned
};

inline constexpr int64_t kAttentionRows = 48;
constexpr size_t AttentionScratchBytes(const KvShape& shape) {
  const int64_t floats =
      2 * shape.PaddedKeyDim() + shape.PaddedValueDim() + kPageTokens + 17;  // of a row
  return static_cast<size_t>(kAttentionRows * floats * 4 + 6 * 64);
}
inline constexpr size_t kPanelBytes = 40 * 1024;

struct KernelTable {
  std::string_view name;  // "avx512vnni"
  std::string_view description;
  bool (*runs_here)();

  // One tile of weights (16 outputs) against `tokens` rows of activations:
  // y[t * y_stride + r], r < 16. A token's 16 sums are the same operations whatever `tokens` is.
  void (*tile_int8)(PackedKind kind, const std::byte* tile, int64_t blocks,
                    const QuantizedActivations& x, int64_t first_token, int64_t tokens, float* y,
                    int64_t y_stride);
  // Two tiles of one kind over the same inputs, for many tokens; the same numbers as tile_int8.
  // scratch: kPanelBytes, 64-byte aligned.
  void (*pair_int8)(PackedKind kind, const std::byte* tile0, const std::byte* tile1, int64_t blocks,
                    const QuantizedActivations& x, int64_t first_token, int64_t tokens, float* y0,
                    float* y1, int64_t y_stride, std::byte* scratch);
  // One tile with fp32 activations [token][blocks * 32], zero beyond the matrix' columns.
  void (*tile_f32)(PackedKind kind, const std::byte* tile, int64_t blocks, const float* x,
                   int64_t x_stride, int64_t tokens, float* y, int64_t y_stride);
  // One or two (tile1: nullptr) tiles of PackedKind::kBF16 with bf16 activations of the same form.
  // A product of pairs is rounded as the processor's instruction does, where it has one.
  void (*pair_bf16)(const std::byte* tile0, const std::byte* tile1, int64_t blocks,
                    const uint16_t* x, int64_t x_stride, int64_t tokens, float* y0, float* y1,
                    int64_t y_stride);
  // n floats, a multiple of 32, to the nearest bf16.
  void (*round_to_bf16)(const float* x, int64_t n, uint16_t* out);
  // n floats, a multiple of 32, to n codes and n / 32 blocks. A NaN or infinity makes its block's
  // scale one.
  void (*quantize)(const float* x, int64_t n, int8_t* codes, ActivationBlock* facts);

  // y = x / sqrt(mean(x^2) + eps) * w; x and y may be the same.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* y);
  void (*add)(const float* x, int64_t n, float* y);  // y += x
  // gate <- silu(gate) * up
  void (*silu_mul)(const float* up, int64_t n, float* gate);
  void (*gelu_tanh_mul)(const float* up, int64_t n, float* gate);
  // Turns (head[i], head[half + i]) by the angles of cos and sin [half].
  void (*rotate)(const float* cos, const float* sin, int64_t half, float* head);

  void (*attention)(const AttentionCall& call);
  // Writes one position (slot of a page) of one key/value head.
  void (*store_kv)(const KvShape& shape, std::byte* page, int64_t kv_head, int64_t slot,
                   const float* key, const float* value);
};

std::span<const KernelTable* const> KernelTables();  // best first
// Error text in `problem` (empty: fine) when LOCKSTEP_ISA names no table or one that does not run
// here.
const KernelTable& ChooseKernels(std::string_view wanted, std::string_view& problem);

}  // namespace lockstep

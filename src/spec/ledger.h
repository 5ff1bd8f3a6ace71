// Ledger: what a spec costs in parameters and bytes, before anything is loaded. Computed from the
// facts alone, for a cache that holds nothing but its elements: `inspect` prints it.
//
// The engine's cache takes exactly kv_cache_full for full attention with f32, f16 or bf16, where
// the context is a multiple of 64 and heads need no padding (TheCacheTakesWhatTheLedgerPredicts in
// tests/engine_reference_test.cc). What it takes beyond these numbers:
// - memory goes by pages of 64 positions (engine/kv_page.h): a context is rounded up to pages, a
//   head's keys in them to 2 elements, its values to 16;
// - a layer with a window keeps 64 positions more than the window (kWindowSlack in
//   engine/kv_cache.h), in whole pages, and what a call is about to append;
// - codes have a scale of 4 bytes for every 32 elements: the keys of q16, keys and values of q8;
// - short convolutions keep their inputs as fp32 in such pages, not as kernel_size - 1 columns.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "spec/model_spec.h"
#include "spec/weights.h"

namespace lockstep {

struct LedgerRequest {
  int64_t context = 0;          // tokens of a sequence, prompt and answer together
  int64_t batch = 1;            // sequences
  int64_t kv_element_size = 4;  // bytes of a cached key or value (KvElementSize in run_spec.h)
  int64_t prefill = 0;          // tokens of one forward pass of one sequence; 0: the context
  int64_t activation_size = 4;  // bytes of an activation
};

// Bytes for all sequences of the batch together, unless said otherwise.
struct Ledger {
  LedgerRequest request;                              // with prefill filled in
  std::array<int64_t, kNumLedgerParts> parameters{};  // CountParameters
  int64_t total_parameters = 0;
  int64_t active_parameters = 0;  // read for one token: of the experts, those that are chosen

  // Attention: batch * context * 2 * num_key_value_heads * head_dim. MLA, whose keys and values are
  // cached expanded: batch * context * heads * (qk_nope_head_dim + qk_rope_head_dim + v_head_dim).
  int64_t kv_cache_full = 0;
  // As kv_cache_full, where a layer with a sliding window keeps min(context, window) positions.
  int64_t kv_cache_windowed = 0;
  // What MLA layers would take if their compressed vectors were cached instead:
  // batch * context * (kv_lora_rank + qk_rope_head_dim). 0 without MLA.
  int64_t mla_latent = 0;
  // Short convolutions: batch * hidden_size * (kernel_size - 1).
  int64_t conv_state = 0;

  // Peak of one sequence's forward pass over n = prefill tokens, buffers shared between layers:
  //   n * (3 * hidden_size + max over layers(max(mixer, feed-forward)))
  // 3 * hidden: residual stream, normed input, the half's output. Attention: q and its output
  // (2 * heads * head_dim), k and v (2 * kv heads * head_dim); scores are never held as a whole.
  // MLA: q, k, v, output per head, the low ranks. Short convolution: 3 * hidden in, hidden out.
  // MLP: up, product and, if gated, gate (2 or 3 * intermediate_size). MoE: router logits and
  // weights (2 * num_experts), hidden_size for the sum, one expert's buffers per chosen expert, the
  // shared MLP's.
  int64_t activations = 0;
  int64_t logits_last = 0;  // batch * vocab_size: of the last position of each sequence
  int64_t logits_all = 0;   // batch * prefill * vocab_size: of every position
};

// The spec must be valid. An error for a request that is not positive or whose bytes pass int64.
Result<Ledger> ComputeLedger(const ModelSpec& spec, const LedgerRequest& request);

// A table for a terminal, sizes in bytes and in binary units.
std::string Describe(const Ledger& ledger);

}  // namespace lockstep

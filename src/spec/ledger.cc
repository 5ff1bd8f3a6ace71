#include "spec/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

namespace lockstep {
namespace {

// A product or sum that remembers whether it passed int64.
struct Bytes {
  int64_t value = 0;
  bool overflow = false;

  Bytes(int64_t v) : value(v) {}  // NOLINT: numbers are bytes
  friend Bytes operator*(Bytes a, Bytes b) {
    Bytes c(0);
    c.overflow = __builtin_mul_overflow(a.value, b.value, &c.value) || a.overflow || b.overflow;
    return c;
  }
  friend Bytes operator+(Bytes a, Bytes b) {
    Bytes c(0);
    c.overflow = __builtin_add_overflow(a.value, b.value, &c.value) || a.overflow || b.overflow;
    return c;
  }
  Bytes& operator+=(Bytes other) { return *this = *this + other; }
};

// Elements that a layer adds to the caches per position, and what a prefill holds per token.
struct LayerSizes {
  int64_t kv = 0;
  int64_t latent = 0;  // MLA: the compressed vector instead
  int64_t conv = 0;    // per sequence, whatever its length
  int64_t buffers = 0;
};

LayerSizes MixerSizes(const AttentionSpec& a, int64_t) {
  const int64_t kv = 2 * a.num_key_value_heads * a.head_dim;
  return {.kv = kv, .buffers = 2 * a.num_attention_heads * a.head_dim + kv};
}
LayerSizes MixerSizes(const MlaSpec& a, int64_t) {
  const int64_t k = a.num_attention_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim);
  const int64_t v = a.num_attention_heads * a.v_head_dim;
  const int64_t latent = a.kv_lora_rank + a.qk_rope_head_dim;
  const int64_t low_ranks = a.q_lora_rank.value_or(0) + latent;
  return {.kv = k + v, .latent = latent, .buffers = 2 * k + 2 * v + low_ranks};
}
LayerSizes MixerSizes(const ShortConvSpec& c, int64_t hidden) {
  return {.conv = hidden * (c.kernel_size - 1), .buffers = 4 * hidden};
}

int64_t FeedForwardBuffers(const MlpSpec& mlp, int64_t) {
  return (mlp.gated ? 3 : 2) * mlp.intermediate_size;
}
int64_t FeedForwardBuffers(const MoeSpec& moe, int64_t hidden) {
  const int64_t shared = moe.shared_expert ? FeedForwardBuffers(moe.shared_expert->mlp, hidden) : 0;
  return 2 * moe.num_experts + hidden +
         moe.num_experts_per_tok * FeedForwardBuffers(moe.expert, hidden) + shared;
}

int64_t MlpParameters(const MlpSpec& mlp, int64_t hidden) {
  const int64_t ups = mlp.gated ? 2 : 1;
  return (ups + 1) * mlp.intermediate_size * hidden +
         (mlp.up_bias ? ups * mlp.intermediate_size : 0) + (mlp.down_bias ? hidden : 0);
}

std::string Group(int64_t n) {  // 124,439,808
  const std::string digits = fmt::format("{}", n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string Binary(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return fmt::format("{:.{}f} {}", size, unit == 0 ? 0 : 2, kUnits[unit]);
}

}  // namespace

Result<Ledger> ComputeLedger(const ModelSpec& spec, const LedgerRequest& request) {
  const auto require = [](std::string_view name, int64_t value, int64_t least) -> Status {
    if (value >= least) return {};
    return UsageError("{}: expected a number of at least {}, found {}", name, least, value);
  };
  LS_RETURN_IF_ERROR(require("context", request.context, 1));
  LS_RETURN_IF_ERROR(require("batch", request.batch, 1));
  LS_RETURN_IF_ERROR(require("bytes per cached element", request.kv_element_size, 1));
  LS_RETURN_IF_ERROR(require("bytes per activation", request.activation_size, 1));
  LS_RETURN_IF_ERROR(require("prefill", request.prefill, 0));

  Ledger ledger{.request = request};
  if (request.prefill == 0) ledger.request.prefill = request.context;
  ledger.parameters = CountParameters(spec);
  ledger.total_parameters =
      std::accumulate(ledger.parameters.begin(), ledger.parameters.end(), int64_t{0});
  ledger.active_parameters = ledger.total_parameters;

  const int64_t hidden = spec.embedding.hidden_size;
  Bytes full = 0, windowed = 0, latent = 0, conv = 0;  // elements of one sequence
  int64_t widest = 0;  // cannot overflow: the sizes of a valid spec are bounded
  for (const LayerSpec& layer : spec.layers) {
    const LayerSizes mixer =
        std::visit([&](const auto& m) { return MixerSizes(m, hidden); }, layer.mixer);
    int64_t kept = request.context;
    if (const auto* a = std::get_if<AttentionSpec>(&layer.mixer); a && a->sliding_window)
      kept = std::min(kept, *a->sliding_window);
    full += Bytes(mixer.kv) * request.context;
    windowed += Bytes(mixer.kv) * kept;
    latent += Bytes(mixer.latent) * request.context;
    conv += mixer.conv;
    const int64_t buffers =
        std::visit([&](const auto& m) { return FeedForwardBuffers(m, hidden); }, layer.mlp);
    widest = std::max({widest, mixer.buffers, buffers});
    if (const auto* moe = std::get_if<MoeSpec>(&layer.mlp)) {
      ledger.active_parameters -=
          (moe->num_experts - moe->num_experts_per_tok) * MlpParameters(moe->expert, hidden);
    }
  }
  const Bytes kv_scale = Bytes(request.batch) * request.kv_element_size;
  const Bytes prefill = Bytes(ledger.request.prefill) * request.activation_size;
  const Bytes logits = Bytes(request.batch) * spec.embedding.vocab_size;
  const std::pair<Bytes, int64_t Ledger::*> results[] = {
      {full * kv_scale, &Ledger::kv_cache_full},
      {windowed * kv_scale, &Ledger::kv_cache_windowed},
      {latent * kv_scale, &Ledger::mla_latent},
      {conv * kv_scale, &Ledger::conv_state},
      {Bytes(3 * hidden + widest) * prefill, &Ledger::activations},
      {logits * request.activation_size, &Ledger::logits_last},
      {logits * prefill, &Ledger::logits_all}};
  for (const auto& [bytes, field] : results) {
    if (bytes.overflow) {
      return UsageError(
          "context {}, batch {}, prefill {}: expected sizes whose bytes stay below 2^63, found "
          "more",
          request.context, request.batch, ledger.request.prefill);
    }
    ledger.*field = bytes.value;
  }
  return ledger;
}

std::string Describe(const Ledger& ledger) {
  std::string out = "parameters\n";
  const auto count = [&](std::string_view name, int64_t n) {
    out += fmt::format("  {:<36}{:>24}\n", name, Group(n));
  };
  for (int i = 0; i < kNumLedgerParts; ++i) {
    if (ledger.parameters[static_cast<size_t>(i)] > 0)
      count(LedgerPartName(static_cast<LedgerPart>(i)), ledger.parameters[static_cast<size_t>(i)]);
  }
  count("total", ledger.total_parameters);
  if (ledger.active_parameters != ledger.total_parameters)
    count("active for one token", ledger.active_parameters);

  const LedgerRequest& request = ledger.request;
  out += fmt::format(
      "bytes: context {}, batch {}, prefill {}, {} per cached element, {} per activation\n",
      request.context, request.batch, request.prefill, request.kv_element_size,
      request.activation_size);
  const auto bytes = [&](std::string_view name, int64_t n) {
    out += fmt::format("  {:<36}{:>24}{:>14}\n", name, Group(n), Binary(n));
  };
  bytes("KV cache", ledger.kv_cache_full);
  if (ledger.kv_cache_windowed != ledger.kv_cache_full)
    bytes("KV cache, sliding layers windowed", ledger.kv_cache_windowed);
  if (ledger.mla_latent > 0) bytes("MLA latents, if cached instead", ledger.mla_latent);
  if (ledger.conv_state > 0) bytes("convolution state", ledger.conv_state);
  bytes("activations of a prefill", ledger.activations);
  bytes("logits, last position", ledger.logits_last);
  bytes("logits, every position", ledger.logits_all);
  return out;
}

}  // namespace lockstep

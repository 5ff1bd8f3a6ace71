// ModelSpec: every fact that decides a number a model computes. Open this file first.
//
// Loaders (arch/) produce a spec; the reference, the engine and the exporters read it and nothing
// else; a fault is an edit of it. Facts are recorded as the checkpoint states them, never folded
// into weights or into each other. A fact that does not apply is absent (std::optional, a variant's
// alternative), never a plausible default. Each formula, with its Hugging Face and GGUF key, is in
// docs/model_spec.md.
//
// Adding a field: add it here and to the field list in spec/field_list.h (it does not compile
// otherwise). JSON, diff, edit by path and printing follow from that list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"

namespace lockstep {

// What a scale or a weight is rounded to before it is used.
enum class Rounding { kNone, kBF16, kFP16, kTwoDecimals };

// x * value, or x / value.
struct Scale {
  double value = 1;
  bool divide = false;
  Rounding rounding = Rounding::kNone;
  bool operator==(const Scale&) const = default;
};

enum class NormKind { kRms, kLayer };

// kRms:   y = x / sqrt(mean(x^2) + eps) * (weight_offset + w)
// kLayer: y = (x - mean(x)) / sqrt(var(x) + eps) * (weight_offset + w) + b, var biased
struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 0;
  double weight_offset = 0;                    // Gemma's RMSNorm and Nemotron's LayerNorm: 1
  Rounding weight_rounding = Rounding::kNone;  // of weight_offset + w
  bool weight = true;                          // false: the norm has no weight (a weight of 1)
  bool bias = false;                           // kLayer only
  bool operator==(const NormSpec&) const = default;
};

// Which elements of a head turn together: (i, i + rotary_dim/2), or (2i, 2i + 1).
enum class RopeLayout { kHalf, kInterleaved };

// How inv_freq[i] = theta^(-2i / rotary_dim) is changed for contexts longer than the trained one.
// inv_freq / factor
struct LinearScaling {
  double factor = 1;
  bool operator==(const LinearScaling&) const = default;
};
// theta grows with the length L: theta * (factor*L/original - (factor-1))^(d/(d-2))
struct DynamicScaling {
  double factor = 1;
  int64_t original_max_position_embeddings = 0;
  bool operator==(const DynamicScaling&) const = default;
};
// low frequencies / factor, high kept, a linear blend between the two wavelengths
struct Llama3Scaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 0;
  bool operator==(const Llama3Scaling&) const = default;
};
// a ramp between inv_freq and inv_freq / factor; cos and sin times attention_factor
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ramp's ends are rounded outwards to whole dimensions
  double attention_factor = 1;
  int64_t original_max_position_embeddings = 0;
  bool operator==(const YarnScaling&) const = default;
};
// inv_freq / short_factor[i], or long_factor[i] once the length passes original
struct LongRopeScaling {
  std::vector<double> short_factor;  // [rotary_dim / 2]
  std::vector<double> long_factor;   // [rotary_dim / 2]
  double attention_factor = 1;
  int64_t original_max_position_embeddings = 0;
  bool operator==(const LongRopeScaling&) const = default;
};
// inv_freq / factors[i]: GGUF stores llama3 bands this way (rope_freqs.weight)
struct FrequencyFactors {
  std::vector<double> factors;  // [rotary_dim / 2]
  bool operator==(const FrequencyFactors&) const = default;
};
using RopeScaling = std::variant<LinearScaling, DynamicScaling, Llama3Scaling, YarnScaling,
                                 LongRopeScaling, FrequencyFactors>;

struct RopeSpec {
  double theta = 0;
  int64_t rotary_dim = 0;  // elements of each head that turn, from the first; even, <= head_dim
  RopeLayout layout = RopeLayout::kHalf;
  std::optional<RopeScaling> scaling;
  bool operator==(const RopeSpec&) const = default;
};

// What a norm of q and k spans: each head by itself, or the whole projected vector.
enum class QkNormScope { kHead, kProjection };

struct AttentionSpec {
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads; head h reads kv head h / (ratio)
  int64_t head_dim = 0;
  Scale query_scale;  // of q . k, before the soft cap and the mask
  bool q_bias = false;
  bool k_bias = false;
  bool v_bias = false;
  bool o_bias = false;
  std::optional<RopeSpec> rope;           // absent: no rotation in this layer
  std::optional<int64_t> sliding_window;  // position p sees (p - window, p]
  std::optional<double> logit_softcap;    // cap * tanh(s / cap), before the mask
  std::optional<NormSpec> q_norm;         // before RoPE
  std::optional<NormSpec> k_norm;
  QkNormScope qk_norm_scope = QkNormScope::kHead;
  std::optional<double> clip_qkv;  // q, k, v clamped to [-clip, clip]; after the norms, before RoPE
  bool sinks = false;              // a learned logit per head joins the softmax and is dropped
  bool operator==(const AttentionSpec&) const = default;
};

// DeepSeek's multi-head latent attention: k and v are expanded from one small vector per token.
struct MlaSpec {
  int64_t num_attention_heads = 0;
  std::optional<int64_t> q_lora_rank;  // absent: q comes from one projection
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  Scale query_scale;
  bool bias = false;  // on q_a, kv_a and o; q without q_lora_rank has none
  RopeSpec rope;      // on the qk_rope_head_dim last elements of q, and on the one shared k_rope
  std::optional<NormSpec> q_a_norm;  // present exactly with q_lora_rank
  NormSpec kv_a_norm;
  bool operator==(const MlaSpec&) const = default;
};

// LFM2's gated short convolution: B, C, x = split(in_proj(h)); out_proj(C * causal_conv(B * x)).
struct ShortConvSpec {
  int64_t kernel_size = 0;  // positions seen, this one included
  bool bias = false;        // on the convolution, in_proj and out_proj
  bool operator==(const ShortConvSpec&) const = default;
};

enum class Activation { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kRelu2 };

// gpt-oss: gate' = min(gate, limit), up' = clamp(up, +-limit);
// gate' * sigmoid(alpha * gate') * (up' + up_offset) takes the place of activation(gate) * up.
struct ClampedGlu {
  double alpha = 0;
  double limit = 0;
  double up_offset = 0;
  bool operator==(const ClampedGlu&) const = default;
};

// gated: down(activation(gate(x)) * up(x)); otherwise down(activation(up(x)))
struct MlpSpec {
  int64_t intermediate_size = 0;
  bool gated = true;
  Activation activation = Activation::kSilu;
  bool up_bias = false;  // gate and up
  bool down_bias = false;
  std::optional<ClampedGlu> clamped_glu;
  bool operator==(const MlpSpec&) const = default;
};

enum class RouterScoring {
  kSoftmaxThenTopK,  // weights are the chosen of softmax over all experts
  kTopKThenSoftmax,  // weights are softmax over the chosen logits
  kSigmoidThenTopK,  // weights are sigmoid of the chosen logits
  kSparseMixer,      // PhiMoE: two experts, each weighed against the logits within
                     // `sparse_mixer_jitter`
};

// Experts are kept in groups; only the best groups may be chosen from. A group is worth the sum of
// its best_per_group best scores: DeepSeek-V3 takes 2, DeepSeek-V2 its best one.
struct RouterGroups {
  int64_t n_group = 0;
  int64_t topk_group = 0;
  int64_t best_per_group = 2;
  bool operator==(const RouterGroups&) const = default;
};

struct RouterSpec {
  RouterScoring scoring = RouterScoring::kSoftmaxThenTopK;
  bool normalize_top_k = false;  // chosen weights divided by (their sum + normalize_epsilon)
  double normalize_epsilon = 0;
  Scale routed_scaling;         // of the chosen weights, last
  bool bias = false;            // of the router's linear layer
  bool selection_bias = false;  // added to scores for choosing only, not to the weights
  std::optional<RouterGroups> groups;
  std::optional<double> sparse_mixer_jitter;  // present exactly with kSparseMixer
  bool operator==(const RouterSpec&) const = default;
};

struct SharedExpertSpec {
  MlpSpec mlp;
  bool sigmoid_gate = false;  // its output times sigmoid(shared_expert_gate . x)
  bool operator==(const SharedExpertSpec&) const = default;
};

struct MoeSpec {
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  RouterSpec router;
  MlpSpec expert;
  std::optional<SharedExpertSpec> shared_expert;
  bool operator==(const MoeSpec&) const = default;
};

using MixerSpec = std::variant<AttentionSpec, MlaSpec, ShortConvSpec>;
using FeedForwardSpec = std::variant<MlpSpec, MoeSpec>;

// kSequential: h = x + residual * post(mixer(pre(x)));  y = h + residual * post(mlp(pre(h)))
// kParallel:   y = x + residual * (post(mixer(pre(x))) + post(mlp(pre(x)))); with no mlp_pre_norm
//              both halves read the mixer's normed input
enum class Wiring { kSequential, kParallel };

struct LayerSpec {
  Wiring wiring = Wiring::kSequential;
  std::optional<NormSpec> mixer_pre_norm;
  std::optional<NormSpec>
      mixer_post_norm;  // of the mixer's output, before it joins the residual stream
  std::optional<NormSpec> mlp_pre_norm;
  std::optional<NormSpec> mlp_post_norm;
  MixerSpec mixer;
  FeedForwardSpec mlp;
  Scale residual;  // of both halves' outputs
  bool operator==(const LayerSpec&) const = default;
};

struct LearnedPositions {
  int64_t num_positions = 0;
  bool operator==(const LearnedPositions&) const = default;
};

struct EmbeddingSpec {
  int64_t vocab_size = 0;  // rows, padding rows included
  int64_t hidden_size = 0;
  Scale scale;                                // of the token embedding
  std::optional<LearnedPositions> positions;  // added after the scale
  bool operator==(const EmbeddingSpec&) const = default;
};

struct LmHeadSpec {
  bool tied = false;  // the head's matrix is the token embedding
  bool bias = false;
  Scale logit_scale;
  std::optional<double> logit_softcap;  // cap * tanh(logit / cap), after the scale
  bool operator==(const LmHeadSpec&) const = default;
};

// What the checkpoint says about ids. Which text they stand for is tokenizer/'s matter.
struct TokenIds {
  std::optional<int64_t> bos;
  std::vector<int64_t> eos;
  std::optional<int64_t> pad;
  bool operator==(const TokenIds&) const = default;
};

struct ModelSpec {
  std::string architecture;  // what the loader called it: for messages and export, never compared
  int64_t max_position_embeddings = 0;
  EmbeddingSpec embedding;
  std::vector<LayerSpec> layers;  // one layer, one entry: no pattern to recompute
  NormSpec final_norm;
  LmHeadSpec lm_head;
  TokenIds tokens;
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace lockstep

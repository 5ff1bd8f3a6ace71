// What LFM2's dense and mixture-of-experts models share: their layers are attention or a gated
// short convolution, under names of their own. Used by arch/ only.
#pragma once

#include "arch/decoder.h"

namespace lockstep {

// A spec with all its layers: norms and mixers. The feed-forward halves are left to the caller.
struct Lfm2Defaults {
  CommonDefaults common;
  int64_t num_key_value_heads = 8;
  double default_theta = 1000000;
};
Result<ModelSpec> ParseLfm2(HfConfig& config, const Lfm2Defaults& defaults);
Result<ModelSpec> ParseGgufLfm2(GgufConfig& config);

inline constexpr TensorRule kHfLfm2Rules[] = {
    {.role = Role::kEmbedTokens, .name = "model.embed_tokens"},
    {.role = Role::kFinalNorm, .name = "model.embedding_norm"},  // in spite of its name
    {.role = Role::kLmHead, .name = "lm_head"},
    {.role = Role::kMixerPreNorm, .name = "model.layers.{layer}.operator_norm"},
    {.role = Role::kMlpPreNorm, .name = "model.layers.{layer}.ffn_norm"},
    {.role = Role::kQProj, .name = "model.layers.{layer}.self_attn.q_proj"},
    {.role = Role::kKProj, .name = "model.layers.{layer}.self_attn.k_proj"},
    {.role = Role::kVProj, .name = "model.layers.{layer}.self_attn.v_proj"},
    {.role = Role::kOProj, .name = "model.layers.{layer}.self_attn.out_proj"},
    {.role = Role::kQNorm, .name = "model.layers.{layer}.self_attn.q_layernorm"},
    {.role = Role::kKNorm, .name = "model.layers.{layer}.self_attn.k_layernorm"},
    {.role = Role::kConvInProj, .name = "model.layers.{layer}.conv.in_proj"},
    {.role = Role::kConv, .name = "model.layers.{layer}.conv.conv", .unit_axis = 1},
    {.role = Role::kConvOutProj, .name = "model.layers.{layer}.conv.out_proj"},
    {.role = Role::kGateProj, .name = "model.layers.{layer}.feed_forward.w1"},
    {.role = Role::kUpProj, .name = "model.layers.{layer}.feed_forward.w3"},
    {.role = Role::kDownProj, .name = "model.layers.{layer}.feed_forward.w2"},
};

inline constexpr TensorRule kGgufLfm2Rules[] = {
    {.role = Role::kFinalNorm, .name = "token_embd_norm"},  // llama.cpp kept the name
    {.role = Role::kConvInProj, .name = "blk.{layer}.shortconv.in_proj"},
    {.role = Role::kConv, .name = "blk.{layer}.shortconv.conv"},
    {.role = Role::kConvOutProj, .name = "blk.{layer}.shortconv.out_proj"},
};

}  // namespace lockstep

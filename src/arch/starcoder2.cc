// StarCoder2: LayerNorm, biases, a plain MLP (transformers: models/starcoder2).
#include "arch/dense.h"

namespace lockstep {
namespace {

Result<ModelSpec> BuildStarcoder2(HfConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseDense(config, {.common = {.tie_word_embeddings = true,
                                                              .max_position_embeddings = 4096,
                                                              .bos_token_id = 50256,
                                                              .eos_token_id = 50256},
                                                   .heads = {.num_key_value_heads = 2},
                                                   .activation = "gelu_pytorch_tanh",
                                                   .norm = NormKind::kLayer,
                                                   .eps_key = "norm_epsilon",
                                                   .eps = 1e-5}));
  LS_TRY(const bool bias, config.Get<bool>("use_bias", true));
  AttentionSpec& attention = decoder.attention;
  attention.q_bias = attention.k_bias = attention.v_bias = attention.o_bias = bias;
  decoder.mlp.up_bias = decoder.mlp.down_bias = bias;
  decoder.mlp.gated = false;
  LS_TRY(attention.sliding_window, ParseSlidingWindow(config, std::nullopt));
  // Of the training code: transformers reads hidden_act and norm_epsilon, and softmax is in fp32.
  for (const std::string_view key :
       {"activation_function", "layer_norm_epsilon", "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32"})
    config.Ignore(key);
  LS_RETURN_IF_ERROR(config.Expect("scale_attn_weights", true));
  LS_RETURN_IF_ERROR(config.Expect("mlp_type", "default"));
  LS_RETURN_IF_ERROR(config.Expect("norm_type", "layer_norm"));
  return Repeat(std::move(decoder));
}

Result<ModelSpec> BuildStarcoder2Gguf(GgufConfig& config) {
  LS_TRY(DecoderFacts decoder, ParseGgufDense(config, {.norm = NormKind::kLayer,
                                                       .norm_bias = true,
                                                       .gated = false,
                                                       .activation = Activation::kGeluTanh}));
  LS_TRY(decoder.attention.sliding_window, GgufSlidingWindow(config));
  return Repeat(std::move(decoder));
}

constexpr TensorRule kHfMlpRules[] = {
    {.role = Role::kUpProj, .name = "model.layers.{layer}.mlp.c_fc"},
    {.role = Role::kDownProj, .name = "model.layers.{layer}.mlp.c_proj"},
};
constexpr auto kHfTensors = JoinRules(kHfDecoderRules, kHfAttentionRules, kHfMlpRules);

constexpr HfArchitecture kHf[] = {
    {.model_type = "starcoder2",
     .class_name = "Starcoder2ForCausalLM",
     .build = BuildStarcoder2,
     .tensors = kHfTensors,
     .gguf = "starcoder2"},
};
constexpr GgufArchitecture kGguf[] = {
    {.architecture = "starcoder2", .build = BuildStarcoder2Gguf, .tensors = kGgufDenseTensors},
};
const ArchitectureFamily kFamily(kHf, kGguf);

}  // namespace
}  // namespace lockstep

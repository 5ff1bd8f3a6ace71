// Claims about single families: what their configuration classes default to, what their old files
// look like. That the numbers come out right is the golden tests' matter.
#include <cmath>

#include "arch/arch_testing.h"
#include "base/mapped_file.h"

namespace lockstep {
namespace {

// `model_type` with sizes that every family takes, and `more` (a list of members) on top.
std::string Config(std::string_view model_type, std::string_view more = "") {
  return fmt::format(R"({{"model_type": "{}", "vocab_size": 320, "hidden_size": 64,
      "intermediate_size": 112, "num_hidden_layers": 8, "num_attention_heads": 4{}{}}})",
                     model_type, more.empty() ? "" : ", ", more);
}

std::vector<bool> Windows(const ModelSpec& spec) {
  std::vector<bool> windows;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    windows.push_back(Attention(spec, i).sliding_window.has_value());
  return windows;
}
std::vector<bool> Ropes(const ModelSpec& spec) {
  std::vector<bool> ropes;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    ropes.push_back(Attention(spec, i).rope.has_value());
  return ropes;
}

TEST(Registry, KnowsTheDenseFamilies) {
  for (const char* type :
       {"cohere", "cohere2", "gemma", "gemma2", "gemma3",  "gemma3_text", "glm",       "glm4",
        "gpt2",   "granite", "lfm2",  "llama",  "mistral", "nemotron",    "olmo",      "olmo2",
        "olmo3",  "phi",     "phi3",  "qwen2",  "qwen3",   "smollm3",     "starcoder2"})
    EXPECT_NE(FindHfArchitecture(type), nullptr) << type;
  for (const char* name : {"cohere2", "command-r", "gemma", "gemma2", "gemma3", "glm4", "gpt2",
                           "granite", "lfm2", "llama", "nemotron", "olmo", "olmo2", "phi2", "phi3",
                           "qwen2", "qwen3", "smollm3", "starcoder2"})
    EXPECT_NE(FindGgufArchitecture(name), nullptr) << name;
  EXPECT_EQ(FindHfArchitecture("lama"), nullptr);
}

// Every weight that a spec of the golden configurations needs has a name in its family's table.
TEST(Registry, EveryRoleAGoldenNeedsHasARule) {
  for (const auto& model : GoldenModels()) {
    const Json json = *ParseJson(*ReadTextFile(model / "config.json"), "config.json");
    const auto built = BuildFrom(json);
    ASSERT_TRUE(built) << model;
    const HfArchitecture* row = FindHfArchitecture(json.value("model_type", ""));
    for (const WeightSlot& slot : RequiredWeights(built->spec)) {
      bool named = false;
      for (const TensorRule& rule : row->tensors) named |= rule.role == slot.id.role;
      EXPECT_TRUE(named) << model << " " << ToString(slot.id);
    }
  }
}

TEST(Gpt2, TheOriginalConfigJsonIsWhollyRead) {
  const ModelSpec spec = SpecOf(R"({"activation_function": "gelu_new",
      "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
      "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
      "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
      "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
      "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
      "summary_use_proj": true,
      "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 50257})");
  EXPECT_TRUE(spec.lm_head.tied);
  EXPECT_EQ(Mlp(spec).intermediate_size, 4 * 768);
  const auto parts = CountParameters(spec);
  int64_t total = 0;
  for (const int64_t part : parts) total += part;
  EXPECT_EQ(total, 124439808);  // "GPT-2 124M"
}

TEST(Gpt2, ScaleByInverseLayerIsAFactOfEachLayer) {
  const ModelSpec spec = SpecOf(R"({"model_type": "gpt2", "n_embd": 48, "n_head": 3, "n_layer": 3,
      "scale_attn_by_inverse_layer_idx": true, "scale_attn_weights": false})");
  EXPECT_EQ(Attention(spec, 0).query_scale.value, 1);
  EXPECT_EQ(Attention(spec, 2).query_scale.value, 1.0 / 3);
}

TEST(Mistral, AnAbsentWindowIs4096AndNullIsNone) {
  EXPECT_EQ(Attention(SpecOf(Config("mistral", R"("num_key_value_heads": 2)"))).sliding_window,
            4096);
  EXPECT_EQ(
      Attention(SpecOf(Config("mistral", R"("sliding_window": null, "num_key_value_heads": 2)")))
          .sliding_window,
      std::nullopt);
}

TEST(Qwen2, UseSlidingWindowFalseMeansNoWindow) {
  const char* text = R"("num_key_value_heads": 2, "sliding_window": 131072, "max_window_layers": 4,
      "use_sliding_window": false)";
  EXPECT_EQ(Windows(SpecOf(Config("qwen2", text))), std::vector<bool>(8, false));
}

TEST(Qwen2, LayersFromMaxWindowLayersOnHaveTheWindow) {
  const ModelSpec spec = SpecOf(Config("qwen2", R"("num_key_value_heads": 2, "sliding_window": 16,
      "max_window_layers": 6, "use_sliding_window": true)"));
  EXPECT_EQ(Windows(spec),
            (std::vector<bool>{false, false, false, false, false, false, true, true}));
  EXPECT_TRUE(Attention(spec).q_bias && Attention(spec).v_bias && !Attention(spec).o_bias);
}

TEST(Gemma, GeluMeansItsTanhForm) {
  const ModelSpec spec =
      SpecOf(Config("gemma", R"("hidden_act": "gelu", "num_key_value_heads": 1)"));
  EXPECT_EQ(Mlp(spec).activation, Activation::kGeluTanh);
  EXPECT_EQ(Attention(spec).head_dim, 256);
  EXPECT_EQ(spec.final_norm.weight_offset, 1);
  EXPECT_EQ(spec.embedding.scale.value, 8);
}

TEST(Gemma2, TheFirstLayerSlidesAndAbsentCapsAreNotNone) {
  const ModelSpec spec = SpecOf(Config("gemma2"));
  EXPECT_EQ(Windows(spec), (std::vector<bool>{true, false, true, false, true, false, true, false}));
  EXPECT_EQ(Attention(spec).logit_softcap, 50);
  EXPECT_EQ(spec.lm_head.logit_softcap, 30);
  const ModelSpec none = SpecOf(
      Config("gemma2", R"("attn_logit_softcapping": null, "final_logit_softcapping": null)"));
  EXPECT_EQ(Attention(none).logit_softcap, std::nullopt);
  EXPECT_EQ(none.lm_head.logit_softcap, std::nullopt);
}

TEST(Gemma3, OldAndNewRopeLayoutsGiveTheSameSpec) {
  const ModelSpec old_layout = SpecOf(Config("gemma3_text", R"("rope_theta": 1000000.0,
      "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
      "sliding_window": 16, "sliding_window_pattern": 3)"));
  const ModelSpec new_layout = SpecOf(Config("gemma3_text", R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}, "sliding_window": 16,
      "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                      "sliding_attention", "sliding_attention", "full_attention",
                      "sliding_attention", "sliding_attention"])"));
  EXPECT_TRUE(old_layout == new_layout);
  EXPECT_EQ(Attention(old_layout, 0).rope->theta, 10000);
  EXPECT_EQ(Attention(old_layout, 0).rope->scaling, std::nullopt);
  EXPECT_EQ(Attention(old_layout, 2).rope->theta, 1000000);
  EXPECT_EQ(std::get<LinearScaling>(*Attention(old_layout, 2).rope->scaling).factor, 8);
}

TEST(Gemma3, KeysThatTransformersReadsWithoutEffectAreReportedAndChangeNothing) {
  // Gemma3Attention does not pass attn_logit_softcapping on; the old word "type" in rope_scaling
  // loses against the rope_type "default" that transformers starts from.
  const Json json = *ParseJson(Config("gemma3_text", R"("attn_logit_softcapping": 30.0,
      "rope_scaling": {"type": "linear", "factor": 8.0})"),
                               "config.json");
  HfConfig config(json, "config.json");
  const auto spec = FindHfArchitecture("gemma3_text")->build(config);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(Attention(*spec, 5).logit_softcap, std::nullopt);
  EXPECT_EQ(Attention(*spec, 5).rope->scaling, std::nullopt);
  EXPECT_EQ(config.UnreadKeys(),
            (std::vector<std::string>{"attn_logit_softcapping", "rope_scaling.type"}));
}

TEST(Gemma3, TheTextPartOfAMultimodalFileStatesOnlyWhatDiffers) {
  // gemma-3-4b-it as published.
  const ModelSpec spec = SpecOf(R"({"architectures": ["Gemma3ForConditionalGeneration"],
      "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
      "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
      "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
      "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
      "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
      "vision_config": {"hidden_size": 1152}})");
  EXPECT_EQ(spec.embedding.vocab_size, 262208);
  EXPECT_EQ(spec.layers.size(), 34u);
  EXPECT_EQ(Attention(spec).num_attention_heads, 8);
  EXPECT_EQ(Attention(spec, 5).sliding_window, std::nullopt);
  EXPECT_EQ(Attention(spec, 6).sliding_window, 1024);
  EXPECT_EQ(spec.tokens.eos, (std::vector<int64_t>{1, 106}));
}

TEST(Gemma3, AnUnreadKeyOfTheTextPartIsReportedWithItsPath) {
  const auto built =
      BuildFrom(std::string_view(R"({"model_type": "gemma3", "text_config": {"surprise": 1}})"));
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(built->unread, std::vector<std::string>{"text_config.surprise"});
}

TEST(Gemma3, BidirectionalAttentionIsRefused) {
  EXPECT_NE(ErrorOf(Config("gemma3_text", R"("use_bidirectional_attention": true)"))
                .find("\"use_bidirectional_attention\" is true, expected false"),
            std::string::npos);
}

TEST(SmolLm3, EveryFourthLayerDoesNotTurn) {
  EXPECT_EQ(Ropes(SpecOf(Config("smollm3"))),
            (std::vector<bool>{true, true, true, false, true, true, true, false}));
  EXPECT_EQ(Ropes(SpecOf(Config("smollm3", R"("no_rope_layers": [0, 1, 1, 1, 1, 1, 1, 1])"))),
            (std::vector<bool>{false, true, true, true, true, true, true, true}));
  EXPECT_NE(
      ErrorOf(Config("smollm3", R"("no_rope_layers": [1])")).find("has 1 entries, expected 8"),
      std::string::npos);
}

TEST(Granite, AttentionMultiplierDefaultsToOne) {
  const ModelSpec spec = SpecOf(Config("granite", R"("logits_scaling": 8.0)"));
  EXPECT_EQ(Attention(spec).query_scale.value, 1);
  EXPECT_EQ(spec.lm_head.logit_scale.value, 8);
  EXPECT_TRUE(spec.lm_head.logit_scale.divide);
}

TEST(Nemotron, HalfOfEachHeadTurnsAndNormsAddOne) {
  const ModelSpec spec = SpecOf(Config("nemotron"));
  EXPECT_EQ(Attention(spec).rope->rotary_dim, 8);
  EXPECT_EQ(spec.layers[0].mlp_pre_norm->weight_offset, 1);
  EXPECT_TRUE(spec.layers[0].mlp_pre_norm->bias);
  EXPECT_FALSE(Mlp(spec).gated);
}

TEST(Phi, BothHalvesReadOneNorm) {
  const ModelSpec spec = SpecOf(Config("phi"));
  EXPECT_EQ(spec.layers[0].wiring, Wiring::kParallel);
  EXPECT_EQ(spec.layers[0].mlp_pre_norm, std::nullopt);
  EXPECT_TRUE(spec.lm_head.bias);
}

// Phi-3-mini-128k as published, with one of the two names longrope had ("su" in its first week).
std::string Phi3Mini128k(std::string_view type) {
  std::string factors = "1.0";
  for (int i = 1; i < 48; ++i) factors += ", 1.0";
  return fmt::format(R"({{"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "auto_map": {{}}, "bos_token_id": 1, "embd_pdrop": 0.0,
      "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "phi3",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
      "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
      "rms_norm_eps": 1e-05, "rope_scaling": {{"long_factor": [{0}], "short_factor": [{0}],
      "type": "{1}"}}, "rope_theta": 10000.0, "sliding_window": 262144,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32064}})",
                     factors, type);
}

TEST(Phi3, SuIsLongropeAndItsAttentionFactorComesFromTheTwoContexts) {
  const ModelSpec spec = SpecOf(Phi3Mini128k("longrope"));
  EXPECT_TRUE(spec == SpecOf(Phi3Mini128k("su")));
  EXPECT_TRUE(spec == SpecOf(Phi3Mini128k("yarn")));
  const auto& scaling = std::get<LongRopeScaling>(*Attention(spec).rope->scaling);
  EXPECT_EQ(scaling.original_max_position_embeddings, 4096);
  // 131072 / 4096 = 32 = 2^5 and 4096 = 2^12
  EXPECT_DOUBLE_EQ(scaling.attention_factor, std::sqrt(1 + 5.0 / 12));
  EXPECT_EQ(Attention(spec).sliding_window, 262144);
}

TEST(Olmo, NormsHaveNoWeights) {
  const ModelSpec spec = SpecOf(Config("olmo", R"("clip_qkv": 8.0)"));
  EXPECT_FALSE(spec.final_norm.weight);
  EXPECT_EQ(spec.final_norm.eps, 1e-5);
  EXPECT_EQ(Attention(spec).clip_qkv, 8);
}

TEST(Olmo2, NormsStandBehindTheHalvesAndSpanWholeVectors) {
  const ModelSpec spec = SpecOf(Config("olmo2"));
  EXPECT_EQ(spec.layers[0].mixer_pre_norm, std::nullopt);
  EXPECT_NE(spec.layers[0].mixer_post_norm, std::nullopt);
  EXPECT_EQ(Attention(spec).qk_norm_scope, QkNormScope::kProjection);
}

TEST(Olmo3, ThreeLayersOfFourSlideAndOnlyTheOthersAreScaled) {
  const ModelSpec spec = SpecOf(Config("olmo3", R"("max_position_embeddings": 65536,
      "rope_theta": 500000, "rope_scaling": {"rope_type": "yarn", "factor": 8.0,
      "attention_factor": 1.2, "beta_fast": 32.0, "beta_slow": 1.0,
      "original_max_position_embeddings": 8192})"));
  EXPECT_EQ(Windows(spec), (std::vector<bool>{true, true, true, false, true, true, true, false}));
  EXPECT_EQ(Attention(spec, 0).rope->scaling, std::nullopt);
  EXPECT_EQ(std::get<YarnScaling>(*Attention(spec, 3).rope->scaling).factor, 8);
}

TEST(Starcoder2, TheTrainingCodesKeysAreKnown) {
  const ModelSpec spec = SpecOf(Config("starcoder2", R"("activation_function": "gelu",
      "layer_norm_epsilon": 1e-05, "attention_softmax_in_fp32": true, "mlp_type": "default",
      "norm_type": "layer_norm", "scale_attention_softmax_in_fp32": true,
      "scale_attn_weights": true, "sliding_window": 4096, "num_key_value_heads": 2)"));
  EXPECT_EQ(Mlp(spec).activation, Activation::kGeluTanh);
  EXPECT_EQ(Attention(spec).sliding_window, 4096);
  EXPECT_TRUE(spec.lm_head.tied);
}

TEST(Cohere2, OnlySlidingLayersTurn) {
  const ModelSpec spec = SpecOf(Config("cohere2", R"("sliding_window_pattern": 4)"));
  EXPECT_EQ(Windows(spec), (std::vector<bool>{true, true, true, false, true, true, true, false}));
  EXPECT_EQ(Ropes(spec), Windows(spec));
  EXPECT_EQ(Attention(spec).rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(Attention(spec).rope->theta, 10000);
  EXPECT_EQ(Attention(SpecOf(Config("cohere"))).rope->theta, 500000);
}

TEST(Cohere, NormsOfEveryHeadAreRefused) {
  EXPECT_NE(ErrorOf(Config("cohere", R"("use_qk_norm": true)")).find("\"use_qk_norm\" is true"),
            std::string::npos);
}

TEST(Glm4, OutputHasNoBiasAndHalfOfEachHeadTurnsInPairs) {
  const ModelSpec spec = SpecOf(Config("glm4"));
  EXPECT_TRUE(Attention(spec).q_bias);
  EXPECT_FALSE(Attention(spec).o_bias);
  EXPECT_EQ(Attention(spec).head_dim, 128);
  EXPECT_EQ(Attention(spec).rope->rotary_dim, 64);
  EXPECT_EQ(Attention(spec).rope->layout, RopeLayout::kInterleaved);
  EXPECT_EQ(spec.tokens.eos, (std::vector<int64_t>{151329, 151336, 151338}));
}

TEST(Lfm2, TheFilesOfItsFirstReleaseAreWhollyRead) {
  // LFM2-1.2B as published.
  const ModelSpec spec = SpecOf(R"({"architectures": ["Lfm2ForCausalLM"],
      "block_auto_adjust_ff_dim": true, "block_dim": 2048, "block_ff_dim": 12288,
      "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0, "block_multiple_of": 256,
      "block_norm_eps": 1e-05, "block_out_init_scale": 1.0, "block_use_swiglu": true,
      "block_use_xavier_init": true, "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false,
      "conv_dim": 2048, "conv_dim_out": 2048, "conv_use_xavier_init": true, "eos_token_id": 7,
      "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 2048, "initializer_range": 0.02,
      "max_position_embeddings": 128000, "model_type": "lfm2", "norm_eps": 1e-05,
      "num_attention_heads": 32, "num_heads": 32, "num_hidden_layers": 16,
      "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 1000000.0,
      "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0", "use_cache": true,
      "use_pos_enc": true, "vocab_size": 65536})");
  EXPECT_EQ(Mlp(spec).intermediate_size, 8192);  // 2/3 of 12288
  EXPECT_TRUE(std::holds_alternative<ShortConvSpec>(spec.layers[0].mixer));
  EXPECT_TRUE(std::holds_alternative<AttentionSpec>(spec.layers[2].mixer));
  EXPECT_TRUE(spec.lm_head.tied);
}

// --- GGUF: the golden files, which llama-quantize wrote ---

Result<ModelSpec> GgufSpec(const std::filesystem::path& path) {
  LS_TRY(const Checkpoint checkpoint, OpenCheckpoint(path));
  const auto name = checkpoint.gguf.Find("general.architecture")->AsString();
  GgufConfig config(checkpoint, std::string(*name));
  LS_TRY(ModelSpec spec, FindGgufArchitecture(*name)->build(config));
  EXPECT_EQ(config.UnreadKeys(), std::vector<std::string>());
  return spec;
}
const std::filesystem::path kGgufs =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf";

TEST(Gguf, LlamaIsTheModelThatWasConverted) {
  const auto spec = GgufSpec(kGgufs / "llama-Q4_0.gguf");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->layers.size(), 2u);
  EXPECT_FALSE(spec->lm_head.tied);
  EXPECT_EQ(spec->final_norm.eps, 1e-5);
  EXPECT_EQ(Attention(*spec).rope->layout, RopeLayout::kHalf);  // the binding undoes the pairs
}

TEST(Gguf, Gemma3sSlidingLayersHaveABaseOfTheirOwn) {
  const auto spec = GgufSpec(kGgufs / "gemma3-Q4_0.gguf");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(Windows(*spec), (std::vector<bool>{true, true, true, true, true, false}));
  EXPECT_EQ(Attention(*spec, 0).rope->theta, 10000);
  EXPECT_EQ(Attention(*spec, 5).rope->theta, 1000000);
  EXPECT_EQ(spec->final_norm.weight_offset, 1);
  EXPECT_EQ(spec->embedding.scale.value, 16);
  EXPECT_TRUE(spec->lm_head.tied);
}

TEST(LayerTypes, OfAWrongLengthOrKindAreErrors) {
  EXPECT_NE(
      ErrorOf(Config("qwen3", R"("layer_types": ["full_attention"], "num_key_value_heads": 2)"))
          .find("\"layer_types\" has 1 entries, expected 8"),
      std::string::npos);
  EXPECT_NE(ErrorOf(Config("gemma2", R"("layer_types": ["conv", "conv", "conv", "conv", "conv",
                "conv", "conv", "conv"])"))
                .find("\"layer_types\"[0] is \"conv\", expected one of full_attention"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep

// The key-values that llama.cpp's converters write for the dense families must state what
// config.json states: each test reads both and compares the specs.
#include <tuple>

#include "arch/arch_testing.h"
#include "arch/gguf_test_file.h"
#include "spec/fields.h"

namespace lockstep {
namespace {

// The keys that every converter writes, from the facts of layer `attention_layer`, and the tensors
// by whose presence GGUF states facts.
GgufTestFile FileOf(const std::string& architecture, const ModelSpec& spec,
                    size_t attention_layer = 0) {
  GgufTestFile file(architecture);
  const AttentionSpec& attention = Attention(spec, attention_layer);
  const int64_t vocab = spec.embedding.vocab_size, hidden = spec.embedding.hidden_size;
  file.Int("context_length", spec.max_position_embeddings).Int("embedding_length", hidden);
  file.Int("block_count", static_cast<int64_t>(spec.layers.size())).Int("vocab_size", vocab);
  file.Int("feed_forward_length", Mlp(spec).intermediate_size);
  file.Int("attention.head_count", attention.num_attention_heads);
  file.Int("attention.head_count_kv", attention.num_key_value_heads);
  file.Int("attention.key_length", attention.head_dim);
  file.Int("attention.value_length", attention.head_dim);
  file.Float(spec.final_norm.kind == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                    : "attention.layer_norm_epsilon",
             static_cast<float>(spec.final_norm.eps));
  if (attention.rope) {
    file.Float("rope.freq_base", static_cast<float>(attention.rope->theta));
    file.Int("rope.dimension_count", attention.rope->rotary_dim);
  }
  if (spec.tokens.bos) file.Int("/tokenizer.ggml.bos_token_id", *spec.tokens.bos);
  if (spec.tokens.pad) file.Int("/tokenizer.ggml.padding_token_id", *spec.tokens.pad);
  for (const int64_t eos : spec.tokens.eos) file.Int("/tokenizer.ggml.eos_token_id", eos);
  file.Tensor("token_embd.weight", {vocab, hidden});
  if (!spec.lm_head.tied) file.Tensor("output.weight", {vocab, hidden});
  const auto in_each_layer = [&](bool present, std::string_view name) {
    for (size_t i = 0; present && i < spec.layers.size(); ++i)
      file.Tensor(fmt::format("blk.{}.{}", i, name), {1});
  };
  in_each_layer(attention.q_bias, "attn_q.bias");
  in_each_layer(attention.k_bias, "attn_k.bias");
  in_each_layer(attention.v_bias, "attn_v.bias");
  in_each_layer(attention.o_bias, "attn_output.bias");
  in_each_layer(Mlp(spec).up_bias, "ffn_up.bias");
  in_each_layer(Mlp(spec).down_bias, "ffn_down.bias");
  return file;
}

void ExpectStates(const GgufTestFile& file, const std::string& architecture, ModelSpec expected) {
  GgufConfig config(file.checkpoint, architecture);
  const auto spec = FindGgufArchitecture(architecture)->build(config);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(config.UnreadKeys(), std::vector<std::string>());
  expected.architecture = architecture;
  EXPECT_TRUE(*spec == expected) << architecture;
  for (const FieldDifference& difference : Diff(expected, *spec))
    ADD_FAILURE() << architecture << ": " << ToString(difference);
}

std::string Config(std::string_view model_type, std::string_view more = "") {
  return fmt::format(R"({{"model_type": "{}", "vocab_size": 320, "hidden_size": 64,
      "intermediate_size": 112, "num_hidden_layers": 8, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1,
      "eos_token_id": 2, "pad_token_id": 0{}{}}})",
                     model_type, more.empty() ? "" : ", ", more);
}

TEST(GgufDense, FamiliesWithoutKeysOfTheirOwnStateTheSame) {
  for (const auto& [model_type, architecture, more] :
       {std::tuple{"llama", "llama", R"("attention_bias": true, "rms_norm_eps": 1e-5)"},
        std::tuple{"qwen2", "qwen2", ""}, std::tuple{"qwen3", "qwen3", R"("head_dim": 32)"},
        std::tuple{"gemma", "gemma", R"("head_dim": 32)"}, std::tuple{"smollm3", "smollm3", ""},
        std::tuple{"nemotron", "nemotron", ""}, std::tuple{"phi", "phi2", ""},
        std::tuple{"phi3", "phi3", ""}, std::tuple{"olmo", "olmo", ""},
        std::tuple{"olmo2", "olmo2", ""}, std::tuple{"starcoder2", "starcoder2", ""},
        std::tuple{"glm4", "glm4", ""}}) {
    const ModelSpec spec = SpecOf(Config(model_type, more));
    ExpectStates(FileOf(architecture, spec), architecture, spec);
  }
}

TEST(GgufDense, Gpt2HasNoRope) {
  const ModelSpec spec = SpecOf(R"({"model_type": "gpt2", "vocab_size": 320, "n_embd": 48,
      "n_head": 3, "n_layer": 3, "n_positions": 160, "bos_token_id": 2, "eos_token_id": 2})");
  ExpectStates(FileOf("gpt2", spec), "gpt2", spec);
}

TEST(GgufDense, GranitesMultipliers) {
  const ModelSpec spec = SpecOf(Config("granite", R"("embedding_multiplier": 12.0,
      "attention_multiplier": 0.0883, "residual_multiplier": 0.22, "logits_scaling": 8.0)"));
  GgufTestFile file = FileOf("granite", spec);
  file.Float("attention.scale", 0.0883F).Float("embedding_scale", 12).Float("logit_scale", 8);
  file.Float("residual_scale", 0.22F);
  ExpectStates(file, "granite", spec);
}

TEST(GgufDense, Gemma2sCapsAndWindow) {
  const ModelSpec spec = SpecOf(Config("gemma2", R"("attn_logit_softcapping": 40.0,
      "final_logit_softcapping": 20.0, "sliding_window": 16)"));
  GgufTestFile file = FileOf("gemma2", spec);
  file.Float("attn_logit_softcapping", 40).Float("final_logit_softcapping", 20);
  file.Int("attention.sliding_window", 16);
  ExpectStates(file, "gemma2", spec);
}

TEST(GgufDense, Gemma3ScalesOnlyTheLayersWithoutAWindow) {
  const ModelSpec spec = SpecOf(Config("gemma3_text", R"("sliding_window": 16,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0})"));
  GgufTestFile file = FileOf("gemma3", spec, /*attention_layer=*/5);
  file.Int("attention.sliding_window", 16);
  file.Text("rope.scaling.type", "linear").Float("rope.scaling.factor", 8);
  ExpectStates(file, "gemma3", spec);
}

TEST(GgufDense, Olmo2WithAWindowIsOlmo3) {
  const ModelSpec spec = SpecOf(Config("olmo3", R"("sliding_window": 16)"));
  GgufTestFile file = FileOf("olmo2", spec);
  file.Int("attention.sliding_window", 16);
  ExpectStates(file, "olmo2", spec);
}

TEST(GgufDense, CoheresLogitScale) {
  const ModelSpec spec = SpecOf(Config("cohere2", R"("sliding_window": 16, "logit_scale": 0.25)"));
  GgufTestFile file = FileOf("cohere2", spec);
  file.Int("attention.sliding_window", 16).Float("logit_scale", 0.25);
  ExpectStates(file, "cohere2", spec);
  const ModelSpec first = SpecOf(Config("cohere"));
  GgufTestFile first_file = FileOf("command-r", first);
  first_file.Float("logit_scale", 0.0625);
  ExpectStates(first_file, "command-r", first);
}

TEST(GgufDense, Lfm2sLayersWithoutKeyValueHeadsAreConvolutions) {
  const ModelSpec spec = SpecOf(Config("lfm2", R"("full_attn_idxs": [2, 5])"));
  GgufTestFile file = FileOf("lfm2", spec, /*attention_layer=*/2);
  file.Ints("attention.head_count_kv", {0, 0, 2, 0, 0, 2, 0, 0}).Int("shortconv.l_cache", 3);
  ExpectStates(file, "lfm2", spec);
}

TEST(GgufDense, HostileSizesAreErrorsThatNameTheKey) {
  const ModelSpec spec = SpecOf(Config("llama"));
  const auto message = [&](std::string_view key, int64_t value) {
    GgufTestFile file = FileOf("llama", spec);
    file.Int(key, value);
    GgufConfig config(file.checkpoint, "llama");
    const auto built = FindGgufArchitecture("llama")->build(config);
    return built ? "accepted" : built.error().message;
  };
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.key_length"})
    for (const int64_t value : {int64_t{0}, int64_t{4294967295}})
      EXPECT_NE(message(key, value).find(key), std::string::npos)
          << key << " " << value << ": " << message(key, value);
  EXPECT_NE(message("attention.head_count_kv", 3).find("attention.head_count_kv"),
            std::string::npos);
}

TEST(GgufDense, ABiasOfSomeLayersOnlyIsRefusedByName) {
  const ModelSpec spec = SpecOf(Config("qwen2"));
  GgufTestFile file = FileOf("qwen2", spec);
  std::erase_if(file.checkpoint.tensors,
                [](const TensorInfo& t) { return t.name == "blk.5.attn_k.bias"; });
  GgufConfig config(file.checkpoint, "qwen2");
  const auto built = FindGgufArchitecture("qwen2")->build(config);
  ASSERT_FALSE(built);
  EXPECT_NE(built.error().message.find("\"blk.0.attn_k.bias\" is present and \"blk.5.attn_k.bias\" "
                                       "is absent"),
            std::string::npos)
      << built.error().message;
}

}  // namespace
}  // namespace lockstep

#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/utf8.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/gpt2_files.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

const Tokenizer& Gpt2() {
  static const Tokenizer tokenizer = [] {
    const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/gpt2/";
    return *LoadGpt2Tokenizer(ReadFile(folder + "encoder.json"), ReadFile(folder + "vocab.bpe"),
                              "gpt2");
  }();
  return tokenizer;
}

std::string RandomText(uint32_t seed, size_t length) {
  std::mt19937 random(seed);
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    uint32_t c = random() % 3 == 0   ? random() % 0x110000
                 : random() % 2 == 0 ? 32 + random() % 95
                                     : random() % 0x500;
    if (c >= 0xD800 && c <= 0xDFFF) c = ' ';
    AppendUtf8(c, text);
  }
  return text;
}

TEST(Tokenizer, ByteLevelTextsSurviveARoundTrip) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    const std::string text = RandomText(seed, seed % 60);
    EXPECT_EQ(Gpt2().Decode(*Gpt2().Encode(text)), text) << "seed " << seed;
  }
}

TEST(Tokenizer, AStreamIsTheWholeAndEveryChunkIsUtf8) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ids;
    for (size_t n = random() % 12; n > 0; --n)
      ids.push_back(static_cast<int32_t>(random() % 50300));
    StreamDecoder stream(Gpt2());
    std::string whole;
    for (const int32_t id : ids) {
      const std::string chunk = stream.Push(id);
      EXPECT_FALSE(FindUtf8Fault(chunk));
      whole += chunk;
    }
    const std::string rest = stream.Flush();
    EXPECT_FALSE(FindUtf8Fault(rest));
    EXPECT_EQ(whole + rest, Gpt2().Decode(ids));
  }
}

TEST(Tokenizer, AFlushedStreamStartsAnew) {
  const auto ids = *Gpt2().Encode("\U0001F600");
  StreamDecoder stream(Gpt2());
  stream.Push(ids[0]);
  EXPECT_EQ(stream.Flush(), "\uFFFD");  // the character never came to its end
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  EXPECT_EQ(text, "\U0001F600");
}

TEST(Tokenizer, OffsetsDoNotChangeTheIds) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    const std::string text = RandomText(seed, 40);
    EXPECT_EQ(Gpt2().EncodeWithOffsets(text)->ids, *Gpt2().Encode(text));
  }
}

TEST(Tokenizer, SpecialTokensInUntrustedTextArePlainText) {
  const std::string text = "a<|endoftext|>b";
  const auto special = *Gpt2().Encode(text);
  const auto plain = *Gpt2().Encode(text, {.parse_special = false});
  EXPECT_EQ(std::count(special.begin(), special.end(), 50256), 1);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 50256), 0);
  EXPECT_EQ(Gpt2().Decode(plain), text);
  EXPECT_EQ(Gpt2().Decode(special, /*skip_special_tokens=*/true), "ab");
}

TEST(Tokenizer, IdsWithoutATokenDecodeToNothing) {
  const std::vector<int32_t> ids{-1, 64, 50257, INT32_MAX, INT32_MIN, 65};
  EXPECT_EQ(Gpt2().Decode(ids), "ab");
  EXPECT_FALSE(Gpt2().TokenText(50257));
  EXPECT_EQ(Gpt2().TokenText(50256), "<|endoftext|>");
  EXPECT_TRUE(Gpt2().IsSpecial(50256));
  EXPECT_EQ(Gpt2().TokenId("<|endoftext|>"), 50256);
  EXPECT_FALSE(Gpt2().TokenId("no such token"));
}

TEST(Tokenizer, OneTokenizerServesManyThreads) {
  const std::string text = RandomText(3, 2000);
  const auto expected = *Gpt2().Encode(text);
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (size_t k = 0; k < good.size(); ++k) {
    threads.emplace_back(
        [&, k] { good[k] = *Gpt2().Encode(text) == expected && Gpt2().Decode(expected) == text; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, std::vector<int>(4, 1));
}

TEST(Tokenizer, VocabularyAndEmbeddingOfDifferentSizesAreReported) {
  EXPECT_EQ(CompareVocabulary(Gpt2(), 50257).message, "");
  const VocabularyFit small = CompareVocabulary(Gpt2(), 50256);
  EXPECT_EQ(small.ids_without_row, std::vector<int32_t>{50256});
  EXPECT_NE(small.message.find("50256 \"<|endoftext|>\""), std::string::npos) << small.message;
  const VocabularyFit large = CompareVocabulary(Gpt2(), 50304);
  EXPECT_EQ(large.rows_without_token, 47u);
  EXPECT_NE(large.message.find("47 of the 50304 rows"), std::string::npos) << large.message;
}

GgufVocabulary TinySpm() {
  GgufVocabulary gguf{.model = "llama"};
  gguf.tokens = {"<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "ab", "\u2581ab", "<x>"};
  gguf.scores = {0, 0, 0, 0, -1, -2, -3, -4, -5, 0};
  gguf.token_types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 4};
  gguf.bos = 1;
  gguf.eos = 2;
  gguf.unk = 0;
  return gguf;
}

TEST(GgufTokenizer, ScoresDecideAndBytesAreTheLastResort) {
  const auto tokenizer = LoadGgufTokenizer(TinySpm(), "x.gguf");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->Encode("ab"), (std::vector<int32_t>{1, 8}));
  EXPECT_EQ(*tokenizer->Encode("abA<x>b"), (std::vector<int32_t>{1, 8, 3, 9, 4, 6}));
  EXPECT_EQ(*tokenizer->Encode("\u00E9", {.add_special_tokens = false}),
            (std::vector<int32_t>{4, 0, 0}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, 8, 3}, true), "abA");
}

TEST(GgufTokenizer, ContradictingVocabulariesAreRefused) {
  const auto error = [](auto edit) {
    GgufVocabulary gguf = TinySpm();
    edit(gguf);
    const auto tokenizer = LoadGgufTokenizer(gguf, "x.gguf");
    return tokenizer ? std::string() : tokenizer.error().message;
  };
  using V = GgufVocabulary;
  EXPECT_NE(error([](V& v) { v.tokens.clear(); }).find("tokens is missing"), std::string::npos);
  EXPECT_NE(error([](V& v) { v.scores.pop_back(); }).find("scores has 9 entries, expected 10"),
            std::string::npos);
  EXPECT_NE(error([](V& v) { v.scores.clear(); }).find("scores is missing"), std::string::npos);
  EXPECT_NE(error([](V& v) { v.token_types.push_back(1); }).find("token_type has 11"),
            std::string::npos);
  EXPECT_NE(error([](V& v) { v.bos = 10; }).find("bos_token_id is 10"), std::string::npos);
  EXPECT_NE(error([](V& v) { v.eos = -1; }).find("eos_token_id is -1"), std::string::npos);
  EXPECT_NE(error([](V& v) { v.bos.reset(), v.add_bos = true; }).find("bos_token_id is missing"),
            std::string::npos);
  EXPECT_NE(error([](V& v) { v.tokens[5] = "\xFF"; }).find("tokens[5] is not UTF-8"),
            std::string::npos);
  EXPECT_NE(error([](V& v) { v.model = "t5"; }).find("known: gpt2, llama"), std::string::npos);
  EXPECT_NE(
      error([](V& v) { v.model = "gpt2", v.pre = "gpt-9"; }).find("known: a.x-4.0, bailingmoe"),
      std::string::npos);
  EXPECT_NE(error([](V& v) { v.model = "gpt2"; }).find("merges is missing"), std::string::npos);
  EXPECT_NE(error([](V& v) { v.model = "gpt2", v.merges = {"ab"}; }).find("merges[0]"),
            std::string::npos);
  EXPECT_NE(error([](V& v) { v.model = "gpt2", v.merges = {"a z"}; }).find("not in the vocabulary"),
            std::string::npos);
}

TEST(GgufTokenizer, EveryRowOfThePreTableCompilesAndIsSorted) {
  std::string_view last;
  for (const GgufPreTokenizer& row : GgufPreTokenizers()) {
    EXPECT_LT(last, row.name);
    last = row.name;
    for (const std::string_view pattern : row.patterns) {
      const auto regex = Regex::Compile(pattern);
      ASSERT_TRUE(regex) << row.name << ": " << regex.error().message;
      std::vector<Regex::Match> matches;
      EXPECT_TRUE(regex->FindAll("It's 12345 o'clock,\r\n\n  \u65E5\u672C \uAC00 end ", matches))
          << row.name;
    }
  }
}

TEST(TokenizerConfig, TokensAndTemplatesOfAllShapesAreRead) {
  const auto config = ParseTokenizerConfig(
      R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"pad_token":null,"add_bos_token":true,
          "chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}],
          "tokenizer_class":"X","model_max_length":1e30,"additional_special_tokens":["<x>",{"content":"<y>"}],
          "extra_special_tokens":{"image_token":"<image>"}})",
      "tokenizer_config.json");
  ASSERT_TRUE(config) << config.error().message;
  using Named = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(config->special_tokens,
            (Named{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"image_token", "<image>"}}));
  EXPECT_EQ(config->additional_special_tokens, (std::vector<std::string>{"<x>", "<y>"}));
  EXPECT_EQ(config->chat_templates.size(), 2u);
  EXPECT_EQ(config->DefaultTemplate(), "A");
  EXPECT_EQ(ParseTokenizerConfig(R"({"chat_template":"A"})", "x")->chat_templates[0].first,
            "default");
  for (const char* bad :
       {"[]", "{", R"({"chat_template":3})", R"({"chat_template":[{"name":"x"}]})",
        R"({"bos_token":{}})", R"({"additional_special_tokens":[3]})"}) {
    EXPECT_FALSE(ParseTokenizerConfig(bad, "x")) << bad;
  }
}

}  // namespace
}  // namespace lockstep

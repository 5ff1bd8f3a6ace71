// tokenizer.json files that are wrong on purpose: each ends in one sentence that names the field.
#include "tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include "tokenizer/gpt2_files.h"

namespace lockstep {
namespace {

std::string ErrorOf(std::string_view json) {
  const auto tokenizer = LoadTokenizerJson(json, "tokenizer.json");
  return tokenizer ? "" : tokenizer.error().message;
}

// A file with one part replaced.
std::string File(std::string_view model, std::string_view rest = "") {
  return fmt::format(R"({{"version":"1.0",{}"model":{}}})", rest, model);
}
constexpr std::string_view kBpe =
    R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]})";

TEST(TokenizerJson, HostileFilesEndInASentenceThatNamesTheField) {
  const std::pair<std::string, std::string_view> kCases[] = {
      // The file as a whole.
      {"", "not a readable JSON"},
      {"{", "not a readable JSON"},
      {"[]", "the file is a list, expected an object"},
      {"42", "expected an object"},
      {"null", "expected an object"},
      {"\"model\"", "expected an object"},
      {"{\"model\":\"\xFF\"}", "not a readable JSON"},
      {"\xEF\xBB\xBF{}", "tokenizer.json:"},
      {R"({"model":"\ud800"})", "tokenizer.json:"},
      {std::string(100'000, '['), "not a readable JSON"},
      {"{}", "model is missing"},
      {R"({"model":null})", "model is missing"},
      {R"({"model":[]})", "model"},
      {R"({"model":{}})", "known: BPE, WordPiece, WordLevel, Unigram"},
      {File(R"({"type":"Magic"})"), "known: BPE, WordPiece, WordLevel, Unigram"},
      {File(R"({"type":7})"), "model.type is a number"},
      // The vocabulary.
      {File(R"({"type":"BPE","merges":[]})"), "model.vocab is missing"},
      {File(R"({"type":"BPE","vocab":[],"merges":[]})"),
       "model.vocab is a list, expected an object"},
      {File(R"({"type":"BPE","vocab":{"a":0}})"), "model.merges is missing"},
      {File(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), "has the id -1"},
      {File(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})"), "has the id 4000000000"},
      {File(R"({"type":"BPE","vocab":{"a":2000000000},"merges":[]})"), "has the id 2000000000"},
      {File(R"({"type":"BPE","vocab":{"a":99999999999999999999},"merges":[]})"), "tokenizer.json:"},
      {File(R"({"type":"BPE","vocab":{"a":18446744073709551615},"merges":[]})"), "is not an id"},
      {File(R"({"type":"BPE","vocab":{"a":1.5},"merges":[]})"), "is not an id"},
      {File(R"({"type":"BPE","vocab":{"a":"0"},"merges":[]})"), "is not an id"},
      {File(R"({"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})"), "given twice"},
      {File(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"), "same id 0"},
      // The merges.
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":{}})"),
       "model.merges is an object, expected a list"},
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":[["a","z"]]})"),
       "\"z\", which is not in the vocabulary"},
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":[["a","a"]]})"), "makes the token \"aa\""},
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":[["a"]]})"), "model.merges[0]"},
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"), "model.merges[0]"},
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":["a a a"]})"), "model.merges[0]"},
      {File(R"({"type":"BPE","vocab":{"a":0},"merges":[3]})"), "model.merges[0]"},
      {File(
           R"({"type":"BPE","vocab":{"a":0,"":1},"merges":[["a",""]],"continuing_subword_prefix":"##"})"),
       "shorter than the continuing_subword_prefix"},
      {File(R"({"type":"BPE","dropout":0.5,"vocab":{},"merges":[]})"),
       "dropout makes the tokens random"},
      {File(R"({"type":"BPE","unk_token":3,"vocab":{},"merges":[]})"),
       "model.unk_token is a number"},
      {File(R"({"type":"BPE","fuse_unk":"yes","vocab":{},"merges":[]})"),
       "model.fuse_unk is a string"},
      // Other models.
      {File(R"({"type":"WordLevel","vocab":{}})"), "model.unk_token is missing"},
      {File(R"({"type":"WordPiece","vocab":{},"max_input_chars_per_word":-3})"),
       "expected 0 or more"},
      {File(R"({"type":"Unigram","vocab":{}})"), "model.vocab is an object, expected a list"},
      {File(R"({"type":"Unigram","vocab":[["a"]]})"), "model.vocab[0]"},
      {File(R"({"type":"Unigram","vocab":[["a","b"]]})"), "model.vocab[0]"},
      {File(R"({"type":"Unigram","vocab":[["a",0.0]],"unk_id":7})"), "unk_id 7"},
      {File(R"({"type":"Unigram","vocab":[["a",0.0]],"unk_id":-1})"), "unk_id -1"},
      {File(R"({"type":"Unigram","vocab":[["a",0.0],["a",1.0]],"unk_id":0})"), "given twice"},
      // The parts around the model.
      {File(kBpe, R"("normalizer":{"type":"Shout"},)"),
       "not a known normalizer (known: Sequence, NFC"},
      {File(kBpe, R"("normalizer":[],)"), "normalizer is a list"},
      {File(kBpe, R"("normalizer":{},)"), "normalizer.type is missing"},
      {File(kBpe, R"("normalizer":{"type":"Sequence"},)"), "normalizer.normalizers is missing"},
      {File(kBpe,
            R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]},)"),
       "normalizer.normalizers[1] has the type \"X\""},
      {File(kBpe, R"("normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""},)"),
       "normalizer.pattern.Regex: the regular expression `(`"},
      {File(kBpe, R"("normalizer":{"type":"Replace","pattern":{},"content":""},)"),
       "neither \"String\" nor \"Regex\""},
      {File(kBpe, R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!!!"},)"),
       "not base64"},
      {File(kBpe, R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="},)"),
       "its trie has 4294967295 bytes"},
      {File(kBpe, R"("pre_tokenizer":{"type":"Chop"},)"),
       "not a known pre-tokenizer (known: Sequence, ByteLevel"},
      {File(kBpe,
            R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Sideways"},)"),
       "\"Sideways\", expected Removed"},
      {File(kBpe, R"("pre_tokenizer":{"type":"Metaspace","replacement":"ab"},)"),
       "expected one character"},
      {File(kBpe, R"("pre_tokenizer":{"type":"Metaspace","replacement":""},)"),
       "expected one character"},
      {File(kBpe, R"("pre_tokenizer":{"type":"CharDelimiterSplit"},)"), "expected one character"},
      {File(kBpe, R"("pre_tokenizer":{"type":"FixedLength","length":0},)"), "expected at least 1"},
      {File(kBpe, R"("post_processor":{"type":"Stamp"},)"), "not a known post-processor"},
      {File(kBpe, R"("post_processor":{"type":"BertProcessing","sep":["x"],"cls":["y",1]},)"),
       "post_processor.sep"},
      {File(kBpe, R"("post_processor":{"type":"BertProcessing","sep":["x",-2],"cls":["y",1]},)"),
       "has the id -2"},
      {File(kBpe, R"("post_processor":{"type":"TemplateProcessing","single":[]},)"),
       "the text would be lost"},
      {File(
           kBpe,
           R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}]},)"),
       "\"A\" is expected once"},
      {File(
           kBpe,
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}]},)"),
       "lacks"},
      {File(kBpe, R"("decoder":{"type":"Whisper"},)"), "not a known decoder"},
      {File(kBpe, R"("decoder":{"type":"Strip","content":"ab"},)"), "expected one character"},
      {File(kBpe, R"("added_tokens":{},)"), "added_tokens is an object, expected a list"},
      {File(kBpe, R"("added_tokens":[{"id":0}],)"), "added_tokens[0].content is missing"},
      {File(kBpe, R"("added_tokens":[{"id":-5,"content":"x"}],)"), "added_tokens[0].id is -5"},
      {File(kBpe, R"("added_tokens":[{"id":4000000000,"content":"x"}],)"),
       "added_tokens[0].id is 4000000000"},
  };
  for (const auto& [json, part] : kCases) {
    const std::string error = ErrorOf(json);
    EXPECT_NE(error.find(part), std::string::npos) << json.substr(0, 200) << "\n  gives: " << error;
    EXPECT_TRUE(error.starts_with("tokenizer.json: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(TokenizerJson, SequencesInSequencesAreBounded) {
  std::string open, close;
  for (int i = 0; i < 100; ++i) {
    open += R"({"type":"Sequence","normalizers":[)";
    close += "]}";
  }
  const std::string error =
      ErrorOf(File(kBpe, fmt::format(R"("normalizer":{}{{"type":"NFC"}}{},)", open, close)));
  EXPECT_NE(error.find("nests more than 32"), std::string::npos) << error;
}

TEST(TokenizerJson, CyclicLookingMergesAreHarmless) {
  // a+b=ab and ab+a=aba, aba+b=abab: every merge makes a longer token, so nothing can go round.
  const auto tokenizer = LoadTokenizerJson(
      File(
          R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"aba":3,"abab":4},"merges":["a b","ab a","aba b","ab ab"]})"),
      "x");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->Encode("ababab"), (std::vector<int32_t>{4, 2}));
}

TEST(TokenizerJson, AnExplosiveRegexIsAnErrorOfTheTextNotAHang) {
  const auto tokenizer = LoadTokenizerJson(
      File(
          kBpe,
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+c"},"behavior":"Isolated"},)"),
      "x");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_TRUE(tokenizer->Encode("aab"));
  const auto ids = tokenizer->Encode(std::string(3000, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("backtracks too much"), std::string::npos);
}

TEST(TokenizerJson, ChainsThatBlowATextUpAreStopped) {
  std::string doubling, mapping,
      big = R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(50'000, 'b') +
            "\"}";
  for (int i = 0; i < 60; ++i) {
    doubling += R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"},)";
    mapping += R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false},)";
  }
  doubling.pop_back();
  mapping.pop_back();
  const std::string text = std::string(2000, 'a') + "\u00E9";
  for (const std::string& part :
       {R"("normalizer":{"type":"Sequence","normalizers":[)" + doubling + "]},",
        "\"normalizer\":" + big + ",",
        R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + mapping + "]},"}) {
    const auto tokenizer = LoadTokenizerJson(File(kBpe, part), "x");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto ids = tokenizer->Encode(text);
    ASSERT_FALSE(ids);
    EXPECT_NE(ids.error().message.find("would make more than"), std::string::npos)
        << ids.error().message;
  }
  EXPECT_NE(ErrorOf(File(kBpe, R"("decoder":{"type":"Sequence","decoders":[)" + doubling + "]},"))
                .find("times as long"),
            std::string::npos);
}

TEST(TokenizerJson, AnUnknownCharacterWithoutAnUnknownTokenIsAnErrorOrVanishes) {
  // Without an unk_token the character vanishes, and what is beside it merges: so does
  // `tokenizers`.
  EXPECT_EQ(*LoadTokenizerJson(File(kBpe), "x")->Encode("axb"), std::vector<int32_t>{2});
  const auto broken = LoadTokenizerJson(
      File(R"({"type":"BPE","unk_token":"<unk>","vocab":{"a":0},"merges":[]})"), "x");
  ASSERT_TRUE(broken);
  EXPECT_FALSE(broken->Encode("z"));
  const auto unigram = LoadTokenizerJson(File(R"({"type":"Unigram","vocab":[["a",0.0]]})"), "x");
  ASSERT_TRUE(unigram);
  EXPECT_TRUE(unigram->Encode("aa"));
  EXPECT_FALSE(unigram->Encode("z"));
}

TEST(TokenizerJson, AnAddedTokenWithAnotherIdThanItDeclaresIsNoted) {
  const auto tokenizer =
      LoadTokenizerJson(File(kBpe, R"("added_tokens":[{"id":9,"content":"<x>"}],)"), "x");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->TokenId("<x>"), 3);
  ASSERT_EQ(tokenizer->notes().size(), 1u);
  EXPECT_NE(tokenizer->notes()[0].find("declares the id 9 but has the id 3"), std::string::npos);
}

TEST(TokenizerJson, MergesAsStringsAndEmptySequencesAreRead) {
  const auto tokenizer = LoadTokenizerJson(
      File(
          R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})",
          R"("normalizer":{"type":"Sequence","normalizers":[]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[]},)"),
      "x");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->Encode("abb"), (std::vector<int32_t>{2, 1}));
}

TEST(Gpt2Files, WrongLinesAndVocabulariesAreRefused) {
  EXPECT_TRUE(LoadGpt2Tokenizer(R"({"a":0,"b":1,"ab":2})", "#version: 0.2\na b\n", "gpt2"));
  for (const auto& [vocabulary, merges, part] :
       {std::tuple(R"({"a":0})", "a\n", "line 1 of the merges"),
        {R"({"a":0})", "a  b\n", "line 1 of the merges"},
        {R"({"a":0})", "#version\na z\n", "not in the vocabulary"},
        {R"({"a":0})", "\xFF \xFF\n", "not UTF-8"},
        {R"([1])", "", "expected an object"},
        {R"({"a":)", "", "not a readable JSON"}}) {
    const auto tokenizer = LoadGpt2Tokenizer(vocabulary, merges, "gpt2");
    ASSERT_FALSE(tokenizer) << merges;
    EXPECT_NE(tokenizer.error().message.find(part), std::string::npos) << tokenizer.error().message;
  }
}

}  // namespace
}  // namespace lockstep

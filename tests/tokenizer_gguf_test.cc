// Real GGUF vocabularies against recorded answers: goldens/tokenizers/*_gguf of LOCKSTEP_GOLDENS,
// with the files in the folder that the environment variable LOCKSTEP_MODELS names. Without them
// nothing is tested here (the files have 100 to 250 MB); src/tokenizer tests the same code on small
// vocabularies.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "formats/checkpoint.h"
#include "model/gguf_text.h"
#include "model/text_model.h"
#include "tokenizer/gguf_tokenizer_json.h"
#include "tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* file;
  const char* goldens;
};

TEST(TokenizerGguf, RealVocabulariesEncodeAndDecodeAsTheReference) {
  if (*LOCKSTEP_MODELS == '\0' || *LOCKSTEP_GOLDENS == '\0')
    GTEST_SKIP() << "needs LOCKSTEP_MODELS and LOCKSTEP_GOLDENS: the files are too large for the "
                    "repository";
  size_t files = 0;
  for (const auto& [file, goldens] : {Case{"SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2_gguf"},
                                      Case{"gemma-3-270m-q4_k_m.gguf", "gemma3_gguf"}}) {
    if (!fs::exists(fs::path(LOCKSTEP_MODELS) / file)) continue;
    ++files;
    const auto checkpoint = OpenCheckpoint(fs::path(LOCKSTEP_MODELS) / file);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto text_model = LoadTextModel(*checkpoint);
    ASSERT_TRUE(text_model) << text_model.error().message;
    ASSERT_TRUE(text_model->tokenizer) << file;
    const Tokenizer& tokenizer = *text_model->tokenizer;

    // Written as a tokenizer.json and read again, it is the same tokenizer.
    const auto vocabulary = ReadGgufVocabulary(*checkpoint);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    const auto json = GgufTokenizerJson(*vocabulary, file);
    ASSERT_TRUE(json) << json.error().message;
    const auto reread = LoadTokenizerJson(*json, "tokenizer.json");
    ASSERT_TRUE(reread) << reread.error().message;

    std::ifstream lines(fs::path(LOCKSTEP_GOLDENS) / "tokenizers" / goldens / "encode.jsonl");
    size_t compared = 0;
    for (std::string line; std::getline(lines, line);) {
      const Json row = *ParseJson(line, goldens);
      if (!row.contains("text")) continue;  // the long texts: src/tokenizer replays them
      // "ids" are the model's own tokenizer.json; where a vocabulary without its merges or without
      // some token cannot give them, the rule of the GGUF format decides.
      const char* key = row.contains("ids_llamacpp_rule") ? "ids_llamacpp_rule" : "ids";
      const auto ids = tokenizer.Encode(row["text"].get<std::string>());
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(*ids, row[key].get<std::vector<int32_t>>()) << row["id"];
      const auto again = reread->Encode(row["text"].get<std::string>());
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(*again, *ids) << row["id"];
      EXPECT_EQ(reread->Decode(*ids), tokenizer.Decode(*ids)) << row["id"];
      if (std::string_view(key) == "ids") {
        EXPECT_EQ(tokenizer.Decode(*ids), row["decoded"].get<std::string>()) << row["id"];
        const char* skip = row.contains("decoded_skip_transformers_gguf")
                               ? "decoded_skip_transformers_gguf"
                               : "decoded_skip";
        EXPECT_EQ(tokenizer.Decode(*ids, true), row[skip].get<std::string>()) << row["id"];
      }
      ++compared;
    }
    EXPECT_GT(compared, 500u) << goldens;
  }
  if (files == 0) GTEST_SKIP() << LOCKSTEP_MODELS << " holds neither file";
}

}  // namespace
}  // namespace lockstep

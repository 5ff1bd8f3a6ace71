#include <gtest/gtest.h>

#include "model/model.h"

namespace lockstep {
namespace {

std::filesystem::path Golden(std::string_view name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / name;
}

TEST(LoadModel, AnOpenCheckpointGivesWhatItsPathGives) {
  for (const char* name : {"models/llama", "gguf/llama-Q4_0.gguf"}) {
    auto checkpoint = OpenCheckpoint(Golden(name));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto opened = LoadModel(*std::move(checkpoint));
    const auto loaded = LoadModel(Golden(name));
    ASSERT_TRUE(opened) << opened.error().message;
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(opened->spec, loaded->spec);
    EXPECT_EQ(opened->notes, loaded->notes);
    EXPECT_EQ(opened->checkpoint.path, Golden(name));
  }
}

TEST(LoadModel, AnUnknownModelTypeIsQuotedAndTheKnownOnesAreListed) {
  Checkpoint checkpoint{.path = "model"};
  checkpoint.config = {{"model_type", "llama\x1b]0;" + std::string(100000, 'x')}};
  const auto model = LoadModel(std::move(checkpoint));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(model.error().message.find('\x1b'), std::string::npos);
  EXPECT_NE(model.error().message.find("known are: "), std::string::npos);
  EXPECT_LE(model.error().message.size(), kMaxMessage);
}

TEST(LoadModel, AQuantizedFolderIsRefusedBeforeItsTensorsAre) {
  auto checkpoint = OpenCheckpoint(Golden("models/llama"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  checkpoint->config["quantization_config"] = {{"quant_method", "fp8"},
                                               {"weight_block_size", {128, 128}}};
  const auto model = LoadModel(*std::move(checkpoint));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(model.error().message.find("quant_method \"fp8\""), std::string::npos)
      << model.error().message;
}

TEST(LoadModel, UnreadKeysAreNotedQuoted) {
  auto checkpoint = OpenCheckpoint(Golden("models/llama"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  checkpoint->config["new\nfact"] = 1;
  const auto model = LoadModel(*std::move(checkpoint));
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(model->notes.size(), 1u);
  EXPECT_TRUE(model->notes[0].ends_with("\"new\\x0afact\"")) << model->notes[0];
}

}  // namespace
}  // namespace lockstep

// The worked examples of docs/formats: the bytes on the page parse to what the page says.
#include <gtest/gtest.h>

#include <charconv>
#include <sstream>

#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/test_bytes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

uint64_t Hex(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  EXPECT_TRUE(error == std::errc() && end == digits.data() + digits.size()) << digits;
  return value;
}

// The page's only ```hex block: lines of an offset, bytes and a note after '|'.
std::string HexBlock(std::string_view page) {
  const auto text = ReadTextFile(fs::path(LOCKSTEP_SOURCE_DIR) / "docs/formats" / page);
  EXPECT_TRUE(text) << text.error().message;
  const size_t fence = text.value_or("").find("```hex\n");
  EXPECT_NE(fence, std::string::npos);
  if (fence == std::string::npos) return "";
  std::istringstream lines(text->substr(fence + 7));
  std::string bytes;
  for (std::string line; std::getline(lines, line) && line != "```";) {
    std::istringstream words(line.substr(0, line.find('|')));
    std::string word;
    words >> word;
    EXPECT_EQ(Hex(word), bytes.size()) << line;
    while (words >> word) bytes += static_cast<char>(Hex(word));
  }
  return bytes;
}

std::vector<float> Values(const TensorInfo& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  tensor.type->dequantize(tensor.data.data(), tensor.elements(), out.data());
  return out;
}

TEST(Docs, TheSafetensorsExampleParses) {
  const std::string bytes = HexBlock("safetensors.md");
  const auto file = ParseSafetensors(AsBytes(bytes), "docs/formats/safetensors.md");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata.at("format"), "pt");
  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->Find("a")->type->name, "I8");
  EXPECT_EQ(file->Find("a")->shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(Values(*file->Find("a")), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Values(*file->Find("b")), (std::vector<float>{1.5f, -2}));
}

TEST(Docs, TheGgufExampleParses) {
  const std::string bytes = HexBlock("gguf.md");
  const auto file = ParseGguf(AsBytes(bytes), "docs/formats/gguf.md");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version, 3u);
  EXPECT_EQ(file->metadata.Find("general.architecture")->AsString(), "llama");
  EXPECT_EQ(file->metadata.Find("n")->AsInt(), 7);
  ASSERT_EQ(file->tensors.size(), 1u);
  const TensorInfo& tensor = file->tensors[0];
  EXPECT_EQ(tensor.name, "w");
  EXPECT_EQ(tensor.type->name, "Q4_0");
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{1, 32}));
  EXPECT_EQ(Values(tensor)[0], -2.15625f);
  EXPECT_EQ(Values(tensor)[16], 2.15625f);
}

}  // namespace
}  // namespace lockstep

// GGUF files that llama-quantize wrote, dequantized, against gguf-py (tools/golden/gguf/make.py):
// the first rows bit for bit, whole tensors by their sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> GoldenGgufs() {
  std::vector<fs::path> paths;
  std::vector<fs::path> folders = {fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gguf"};
  if (!std::string_view(LOCKSTEP_GOLDENS).empty())
    folders.push_back(fs::path(LOCKSTEP_GOLDENS) / "gguf");
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      fs::path golden = entry.path();
      if (golden.extension() == ".gguf" && fs::exists(golden.replace_extension(".safetensors")))
        paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<float> Dequantized(const TensorInfo& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  tensor.type->dequantize(tensor.data.data(), tensor.elements(), out.data());
  return out;
}

void CheckRows(const TensorInfo& golden, const TensorInfo& tensor) {
  const std::vector<float> found = Dequantized(tensor);
  ASSERT_LE(golden.data.size(), found.size() * sizeof(float));
  for (size_t i = 0; i < golden.data.size() / sizeof(float); ++i) {
    float expected = 0;
    std::memcpy(&expected, golden.data.data() + i * sizeof expected, sizeof expected);
    ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected))
        << tensor.name << " element " << i << ": " << found[i] << ", expected " << expected;
  }
}

// Two doubles: the sum and the sum of squares. NumPy adds pairwise, we add in order: the sums may
// part by n roundings of the sum of magnitudes.
void CheckSums(const TensorInfo& golden, const TensorInfo& tensor) {
  ASSERT_EQ(golden.data.size(), 2 * sizeof(double));
  double expected[2];
  std::memcpy(expected, golden.data.data(), sizeof expected);
  double sum = 0, squares = 0, magnitudes = 0;
  for (const double x : Dequantized(tensor)) {
    sum += x;
    squares += x * x;
    magnitudes += std::abs(x);
  }
  const double roundings = static_cast<double>(tensor.elements()) * 0x1p-53;
  EXPECT_NEAR(sum, expected[0], roundings * magnitudes) << tensor.name;
  EXPECT_NEAR(squares, expected[1], roundings * squares) << tensor.name;
}

TEST(GgufGolden, EveryTensorOfEveryFileDequantizesToWhatGgufPySays) {
  const auto paths = GoldenGgufs();
  ASSERT_GE(paths.size(), 6u);
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.string());
    const auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto golden = OpenSafetensors(fs::path(path).replace_extension(".safetensors"));
    ASSERT_TRUE(golden) << golden.error().message;
    size_t sums = 0, rows = 0;
    for (const TensorInfo& expected : golden->tensors) {
      for (const std::string_view prefix : {"dequant.", "dequant_sum."}) {
        if (!expected.name.starts_with(prefix)) continue;
        const TensorInfo* tensor =
            checkpoint->Find(std::string_view(expected.name).substr(prefix.size()));
        ASSERT_NE(tensor, nullptr) << expected.name;
        if (prefix == "dequant.") {
          CheckRows(expected, *tensor);
          ++rows;
        } else {
          CheckSums(expected, *tensor);
          ++sums;
        }
      }
    }
    EXPECT_EQ(sums, checkpoint->tensors.size());
    EXPECT_GE(rows, 4u);
  }
}

}  // namespace
}  // namespace lockstep

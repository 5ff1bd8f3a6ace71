// For tests: the folders of tests/golden/sampling, and their tensors.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "engine/generation_config.h"
#include "formats/safetensors.h"

namespace lockstep {

inline std::vector<std::filesystem::path> SamplingFolders() {
  std::vector<std::filesystem::path> folders = {std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                                                "tests/golden/sampling"};
  const std::filesystem::path more = std::filesystem::path(LOCKSTEP_GOLDENS) / "sampling";
  if (!std::string_view(LOCKSTEP_GOLDENS).empty() && std::filesystem::exists(more))
    folders.push_back(more);
  return folders;
}

inline Json ReadJsonFile(const std::filesystem::path& path) {
  const auto text = ReadTextFile(path);
  EXPECT_TRUE(text) << text.error().message;
  return Json::parse(*text);
}

class GoldenTensors {
 public:
  explicit GoldenTensors(const std::filesystem::path& path) {
    auto file = OpenSafetensors(path);
    EXPECT_TRUE(file) << file.error().message;
    file_ = *std::move(file);
  }
  bool Has(const std::string& name) const { return file_.Find(name) != nullptr; }
  std::vector<float> Get(const std::string& name) const {
    const TensorInfo* tensor = file_.Find(name);
    EXPECT_NE(tensor, nullptr) << name;
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
  }

 private:
  SafetensorsFile file_;
};

// A golden's "config": like generation_config.json, but with nothing on by default.
inline GenerationConfig GoldenConfig(Json json) {
  if (!json.contains("top_k")) json["top_k"] = 0;
  json.erase("min_tokens_to_keep");
  const auto parsed = ParseGenerationConfig(json, "config");
  EXPECT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->warnings.empty()) << parsed->warnings[0];
  return parsed->config;
}

// float32 operations in another order or precision: a few units in the last place.
inline constexpr float kScoreTolerance = 4e-6f;
inline bool SameScore(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= kScoreTolerance * std::max(1.0f, std::fabs(b));
}

}  // namespace lockstep

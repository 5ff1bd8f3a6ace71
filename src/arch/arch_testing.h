// For the tests of arch/: a spec from the text of a config.json, and the golden configurations.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "arch/architecture.h"

namespace lockstep {

struct Built {
  ModelSpec spec;
  std::vector<std::string> unread;
};

inline Result<Built> BuildFrom(const Json& json) {
  const HfArchitecture* row = FindHfArchitecture(json.value("model_type", ""));
  if (row == nullptr) return InputError("no such model_type");
  HfConfig config(json, "config.json");
  LS_RETURN_IF_ERROR(RefuseQuantized(config));
  LS_TRY(ModelSpec spec, row->build(config));
  return Built{std::move(spec), config.UnreadKeys()};
}

inline Result<Built> BuildFrom(std::string_view text) {
  LS_TRY(const Json json, ParseJson(text, "config.json"));
  return BuildFrom(json);
}

// The spec of a configuration that must be good and wholly read.
inline ModelSpec SpecOf(std::string_view text) {
  auto built = BuildFrom(text);
  EXPECT_TRUE(built) << built.error().message;
  if (!built) return {};
  EXPECT_EQ(built->unread, std::vector<std::string>());
  return std::move(built->spec);
}

inline std::string ErrorOf(std::string_view text) {
  const auto built = BuildFrom(text);
  EXPECT_FALSE(built) << text;
  return built ? "" : built.error().message;
}

inline const AttentionSpec& Attention(const ModelSpec& spec, size_t layer = 0) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}
inline const MlpSpec& Mlp(const ModelSpec& spec, size_t layer = 0) {
  return std::get<MlpSpec>(spec.layers.at(layer).mlp);
}

// Folders with a config.json: those of the repository, and the large set where there is one.
inline std::vector<std::filesystem::path> GoldenModels() {
  std::vector<std::filesystem::path> roots = {std::filesystem::path(LOCKSTEP_SOURCE_DIR) /
                                              "tests/golden/models"};
  if (std::string_view(LOCKSTEP_GOLDENS) != "")
    roots.push_back(std::filesystem::path(LOCKSTEP_GOLDENS) / "models");
  std::vector<std::filesystem::path> models;
  for (const auto& root : roots) {
    if (!std::filesystem::is_directory(root)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (std::filesystem::exists(entry.path() / "config.json")) models.push_back(entry.path());
  }
  return models;
}

}  // namespace lockstep

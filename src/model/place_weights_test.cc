#include "model/place_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "model/model.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> GoldenModels() {
  std::vector<fs::path> roots = {fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models"};
  if (*LOCKSTEP_GOLDENS != '\0') roots.push_back(fs::path(LOCKSTEP_GOLDENS) / "models");
  std::vector<fs::path> models;
  for (const fs::path& root : roots)
    for (const auto& entry : fs::directory_iterator(root))
      if (fs::exists(entry.path() / "config.json")) models.push_back(entry.path());
  return models;
}

// transformers wrote these folders: what the rules say of a spec must be what it wrote.
TEST(PlaceWeights, GivesTheDirectoryThatTransformersWrote) {
  size_t models = 0;
  for (const fs::path& path : GoldenModels()) {
    const auto model = LoadModel(path);
    ASSERT_TRUE(model) << model.error().message;
    const auto placed =
        PlaceWeights(model->spec, FindHfArchitecture(model->spec.architecture)->tensors, "x");
    ASSERT_TRUE(placed) << placed.error().message;
    std::map<std::string, std::vector<int64_t>> wanted, found;
    for (const TensorInfo& tensor : model->checkpoint.tensors) wanted[tensor.name] = tensor.shape;
    for (const PlacedTensor& tensor : *placed) found[tensor.name] = tensor.shape;
    EXPECT_EQ(found, wanted) << path;
    ++models;
  }
  EXPECT_GE(models, 30u);
}

TEST(PlaceWeights, RowsFilledInPiecesAreTheBytesOfTheCheckpoint) {
  for (const fs::path& path : GoldenModels()) {
    const auto model = LoadModel(path);
    ASSERT_TRUE(model) << model.error().message;
    const auto placed =
        PlaceWeights(model->spec, FindHfArchitecture(model->spec.architecture)->tensors, "x");
    ASSERT_TRUE(placed) << placed.error().message;
    for (const PlacedTensor& tensor : *placed) {
      const TensorInfo* stored = model->checkpoint.Find(tensor.name);
      ASSERT_NE(stored, nullptr) << tensor.name;
      std::vector<std::byte> bytes(stored->data.size());
      const int64_t rows = stored->elements() / tensor.row_elements();
      const auto row_bytes = static_cast<int64_t>(bytes.size()) / rows;
      for (int64_t first = 0; first < rows; first += 7)
        ASSERT_TRUE(FillPlacedRows(tensor, model->weights, *stored->type, first,
                                   std::min<int64_t>(7, rows - first),
                                   bytes.data() + first * row_bytes));
      EXPECT_EQ(std::memcmp(bytes.data(), stored->data.data(), bytes.size()), 0)
          << path << " " << tensor.name;
    }
  }
}

TEST(PlaceWeights, AWeightWithoutANameIsRefused) {
  const auto model = LoadModel(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/models/mixtral");
  ASSERT_TRUE(model) << model.error().message;
  const auto placed = PlaceWeights(model->spec, FindGgufArchitecture("gpt2")->tensors, "mixtral");
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(placed.error().message.find("no name for layers.0.router.weight"), std::string::npos)
      << placed.error().message;
}

}  // namespace
}  // namespace lockstep

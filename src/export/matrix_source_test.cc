#include "export/matrix_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/testing.h"
#include "model/random_weights.h"
#include "spec/random_spec.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

MatrixSource Numbered(int64_t rows, int64_t cols, float first) {
  return {rows,
          cols,
          [cols, first](int64_t row, int64_t count, float* out) {
            for (int64_t i = 0; i < count * cols; ++i)
              out[i] = first + static_cast<float>(row * cols + i);
          },
          {}};
}

std::vector<float> All(const MatrixSource& source, int64_t step) {
  std::vector<float> out(static_cast<size_t>(source.rows * source.cols));
  for (int64_t r = 0; r < source.rows; r += step)
    source.read(r, std::min(step, source.rows - r), out.data() + r * source.cols);
  return out;
}

std::vector<float> Written(const std::function<Status(DataFile&)>& write) {
  const TestFolder folder;
  std::vector<float> out;
  {
    auto file = DataFile::Create(folder / "data", 0, nullptr);
    EXPECT_TRUE(file);
    EXPECT_TRUE(write(*file));
    EXPECT_TRUE(file->Finish());
    std::ifstream in(folder / "data", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    out.resize(bytes.size() / sizeof(float));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(out.data()));
  }
  return out;
}

TEST(MatrixSource, StackedRowsAreReadAcrossTheirParts) {
  const auto stacked = [] {
    return Stacked({Numbered(3, 2, 0), Numbered(1, 2, 100), Numbered(4, 2, 200)});
  };
  const std::vector<float> expected = {0,   1,   2,   3,   4,   5,   100, 101,
                                       200, 201, 202, 203, 204, 205, 206, 207};
  for (int64_t step = 1; step <= 8; ++step) EXPECT_EQ(All(stacked(), step), expected) << step;
}

TEST(MatrixSource, RowsInTurnAlternate) {
  const std::vector<float> expected = {0, 1, 10, 11, 2, 3, 12, 13};
  for (int64_t step = 1; step <= 4; ++step)
    EXPECT_EQ(All(InTurn(Numbered(2, 2, 0), Numbered(2, 2, 10)), step), expected) << step;
}

TEST(MatrixSource, TransposedTwiceIsTheSame) {
  ThreadPool pool(3);
  const MatrixSource matrix = Numbered(71, 37, 5);  // neither is a multiple of a panel
  const std::vector<float> transposed =
      Written([&](DataFile& file) { return WriteTransposed(matrix, {}, pool, file); });
  ASSERT_EQ(transposed.size(), 71u * 37u);
  for (size_t r = 0; r < 71; ++r)
    for (size_t c = 0; c < 37; ++c)
      ASSERT_EQ(transposed[c * 71 + r], 5 + static_cast<float>(r * 37 + c));
  EXPECT_EQ(Written([&](DataFile& file) { return WriteRows(matrix, {}, pool, file); }),
            All(matrix, 71));
}

TEST(MatrixSource, ForgettingPagesLosesNoValueThatNoFileHolds) {
  const ModelSpec spec = RandomSpec(3);
  const auto owned = RandomWeights(spec, 3);
  const std::vector<float> before = owned->values;
  for (const auto& [id, view] : owned->weights.all()) ForgetPages(owned->weights, SourceOf(view));
  EXPECT_EQ(owned->values, before);
}

}  // namespace
}  // namespace lockstep

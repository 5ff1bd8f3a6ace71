#include "quant/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quant/onnx_formats.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 24, kCols = 160, kInputs = 400;

std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

// Inputs whose columns share a few causes, as hidden states do: [kInputs, kCols].
std::vector<float> CorrelatedInputs(uint32_t seed) {
  constexpr size_t kCauses = 12;
  const std::vector<float> causes = Normal(kInputs * kCauses, seed),
                           mix = Normal(kCauses * kCols, 3),
                           own = Normal(kInputs * kCols, seed + 1);
  std::vector<float> x(kInputs * kCols);
  for (size_t t = 0; t < kInputs; ++t)
    for (size_t c = 0; c < kCols; ++c) {
      float sum = 0.3f * own[t * kCols + c];
      for (size_t k = 0; k < kCauses; ++k) sum += causes[t * kCauses + k] * mix[k * kCols + c];
      x[t * kCols + c] = sum;
    }
  return x;
}

std::vector<float> ProductsOf(const std::vector<float>& x) {
  std::vector<float> out(kCols * kCols);
  for (size_t t = 0; t < kInputs; ++t)
    for (size_t i = 0; i < kCols; ++i)
      for (size_t j = i; j < kCols; ++j) out[i * kCols + j] += x[t * kCols + i] * x[t * kCols + j];
  return out;
}

PackedWeight Packed(const std::vector<float>& w, const CodeRecipe& recipe,
                    const ErrorFeedback* feedback, ThreadPool* pool) {
  RowSource source = RowsOf(w, kRows, kCols);
  source.feedback = feedback;
  auto packed = PackMatMulNBits({&source, 1}, recipe, pool);
  EXPECT_TRUE(packed) << packed.error().message;
  return *std::move(packed);
}

// sum over inputs and outputs of ((w - w') x)^2.
double OutputError(const std::vector<float>& w, const PackedWeight& packed,
                   const CodeRecipe& recipe, const std::vector<float>& x) {
  const OnnxFormat& format = *FindOnnxFormat("matmul_nbits");
  double sum = 0;
  std::vector<float> row(kCols);
  for (int64_t r = 0; r < kRows; ++r) {
    format.unpack(packed, recipe, 0, kRows, kCols, r, row.data());
    for (size_t t = 0; t < kInputs; ++t) {
      double y = 0;
      for (size_t c = 0; c < kCols; ++c)
        y += (double{w[static_cast<size_t>(r * kCols) + c]} - row[c]) * x[t * kCols + c];
      sum += y * y;
    }
  }
  return sum;
}

std::vector<CodeRecipe> Recipes() {
  std::vector<CodeRecipe> out;
  for (const int bits : {2, 4, 8})
    for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes})
      for (const ScaleSearch search : {ScaleSearch::kNearest, ScaleSearch::kSquaredError})
        for (const int64_t block : {16, 32, 64})  // of 64 the last is cut
          out.push_back({.bits = bits, .block = block, .zeros = zeros, .search = search});
  return out;
}

TEST(ErrorFeedback, WhereInputsAreCorrelatedOutputsAreNearerThanAfterPlainRounding) {
  const std::vector<float> w = Normal(kRows * kCols, 1), seen = CorrelatedInputs(10),
                           others = CorrelatedInputs(20);
  const auto feedback = ErrorFeedback::Of(ProductsOf(seen), kCols, {}, nullptr);
  ASSERT_TRUE(feedback);
  for (const CodeRecipe& recipe : Recipes()) {
    const PackedWeight plain = Packed(w, recipe, nullptr, nullptr);
    const PackedWeight fed = Packed(w, recipe, &*feedback, nullptr);
    // On inputs that it was not made of as well.
    for (const std::vector<float>& x : {seen, others})
      EXPECT_LT(OutputError(w, fed, recipe, x), 0.7 * OutputError(w, plain, recipe, x))
          << recipe.bits << " bits, block " << recipe.block;
  }
}

TEST(ErrorFeedback, WhereInputsShareNothingItIsPlainRounding) {
  const std::vector<float> w = Normal(kRows * kCols, 1);
  std::vector<float> identity(kCols * kCols);
  for (size_t i = 0; i < kCols; ++i) identity[i * (kCols + 1)] = 3;
  const auto feedback = ErrorFeedback::Of(identity, kCols, {}, nullptr);
  ASSERT_TRUE(feedback);
  for (const float cost : feedback->costs()) EXPECT_EQ(cost, 1);
  for (CodeRecipe recipe : Recipes()) {
    recipe.search = ScaleSearch::kNearest;
    const PackedWeight plain = Packed(w, recipe, nullptr, nullptr);
    const PackedWeight fed = Packed(w, recipe, &*feedback, nullptr);
    EXPECT_EQ(plain.codes.bytes, fed.codes.bytes);
    EXPECT_EQ(plain.scales.bytes, fed.scales.bytes);
  }
}

TEST(ErrorFeedback, BytesDoNotDependOnTheNumberOfThreads) {
  const std::vector<float> w = Normal(kRows * kCols, 1), seen = CorrelatedInputs(10);
  for (const CodeRecipe& recipe : Recipes()) {
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const auto feedback = ErrorFeedback::Of(ProductsOf(seen), kCols, {}, &pool);
      ASSERT_TRUE(feedback);
      const PackedWeight fed = Packed(w, recipe, &*feedback, &pool);
      if (threads == 1) first = fed.codes.bytes;
      EXPECT_EQ(fed.codes.bytes, first) << threads << " threads";
    }
  }
}

// What the audit asks of codes (audit/weight_sums.h, EveryBlockFollows).
TEST(ErrorFeedback, MovesNoElementByMoreThanTwoSteps) {
  const std::vector<float> w = Normal(kRows * kCols, 1);
  const auto feedback = ErrorFeedback::Of(ProductsOf(CorrelatedInputs(10)), kCols, {}, nullptr);
  ASSERT_TRUE(feedback);
  const OnnxFormat& format = *FindOnnxFormat("matmul_nbits");
  for (const CodeRecipe& recipe : Recipes()) {
    const PackedWeight fed = Packed(w, recipe, &*feedback, nullptr);
    std::vector<float> row(kCols);
    for (int64_t r = 0; r < kRows; ++r) {
      format.unpack(fed, recipe, 0, kRows, kCols, r, row.data());
      for (int64_t begin = 0; begin < kCols; begin += recipe.block) {
        float largest = 0, worst = 0;
        for (int64_t c = begin; c < std::min(kCols, begin + recipe.block); ++c) {
          const float x = w[static_cast<size_t>(r * kCols + c)];
          largest = std::max(largest, std::abs(x));
          worst = std::max(worst, std::abs(x - row[static_cast<size_t>(c)]));
        }
        EXPECT_LE(worst, 4.0f / static_cast<float>(1 << recipe.bits) * largest);
      }
    }
  }
}

TEST(ErrorFeedback, OfFewInputsOrOfColumnsThatNothingMovesIsStillDefined) {
  std::vector<float> few(kCols * kCols);
  few[0] = 1e6f;  // one column, once
  EXPECT_TRUE(ErrorFeedback::Of(few, kCols, {}, nullptr));
  EXPECT_FALSE(ErrorFeedback::Of(std::vector<float>(kCols * kCols), kCols, {}, nullptr));
  few[3] = NAN;
  EXPECT_FALSE(ErrorFeedback::Of(few, kCols, {}, nullptr));
}

}  // namespace
}  // namespace lockstep

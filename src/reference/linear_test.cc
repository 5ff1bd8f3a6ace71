#include "reference/linear.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

// Values in [-1, 1) that repeat with no short period.
std::vector<float> Values(size_t n) {
  std::vector<float> x(n);
  uint32_t state = 12345;
  for (float& e : x) {
    state = state * 1664525 + 1013904223;
    e = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return x;
}

WeightView View(const std::vector<float>& w, size_t rows, size_t cols) {
  return {.tensor = "w",
          .type = FindTensorType("F32"),
          .data = reinterpret_cast<const std::byte*>(w.data()),
          .rows = static_cast<int64_t>(rows),
          .cols = static_cast<int64_t>(cols),
          .row_stride = static_cast<int64_t>(cols)};
}

TEST(Linear, EqualsTheSumOfProductsForEveryShape) {
  ThreadPool pool(2);
  for (const size_t tokens : {1, 3, 4, 9}) {
    for (const size_t outputs : {1, 5, 16, 35}) {
      for (const size_t inputs : {1, 15, 16, 70}) {
        const auto w = Values(outputs * inputs), x = Values(tokens * inputs), b = Values(outputs);
        const WeightView bias = View(b, 1, outputs);
        std::vector<float> y(tokens * outputs);
        Linear<float>(pool, View(w, outputs, inputs), &bias, {x.data(), tokens, inputs},
                      {y.data(), tokens, outputs});
        for (size_t t = 0; t < tokens; ++t) {
          for (size_t o = 0; o < outputs; ++o) {
            double expected = b[o], magnitude = std::abs(b[o]);
            for (size_t i = 0; i < inputs; ++i) {
              const double product = static_cast<double>(x[t * inputs + i]) * w[o * inputs + i];
              expected += product;
              magnitude += std::abs(product);
            }
            // Each of at most inputs + 1 roundings is below half an ulp of the partial sums.
            ASSERT_NEAR(y[t * outputs + o], expected,
                        magnitude * static_cast<double>(inputs + 1) * 0x1p-24);
          }
        }
      }
    }
  }
}

TEST(Linear, ATokenAloneGetsTheBitsItGetsInCompany) {
  ThreadPool pool(1);
  const size_t outputs = 21, inputs = 50, tokens = 11;
  const auto w = Values(outputs * inputs), x = Values(tokens * inputs);
  std::vector<float> together(tokens * outputs), alone(outputs);
  Linear<float>(pool, View(w, outputs, inputs), nullptr, {x.data(), tokens, inputs},
                {together.data(), tokens, outputs});
  for (size_t t = 0; t < tokens; ++t) {
    Linear<float>(pool, View(w, outputs, inputs), nullptr, {x.data() + t * inputs, 1, inputs},
                  {alone.data(), 1, outputs});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.data() + t * outputs));
  }
}

TEST(Scores, AreDotProductsWithStridedKeys) {
  const auto keys = Values(3 * 100), query = Values(70);
  float scores[3];
  Scores(query.data(), keys.data(), 100, 3, 70, scores);
  for (size_t i = 0; i < 3; ++i) {
    double expected = 0;
    for (size_t d = 0; d < 70; ++d) expected += static_cast<double>(query[d]) * keys[i * 100 + d];
    EXPECT_NEAR(scores[i], expected, 1e-5);
  }
}

}  // namespace
}  // namespace lockstep

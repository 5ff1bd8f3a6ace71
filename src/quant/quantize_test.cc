// Quantizers: what their codes give back. That the errors are no larger than llama-quantize's is
// tested where its files are (LOCKSTEP_GOLDENS), in export/gguf/quantizer_golden_test.cc.
#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quant/tensor_type.h"

namespace lockstep {
namespace {

constexpr int64_t kElements = 256 * 64;

std::vector<float> Gaussian(uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::vector<float> x(kElements);
  // Sums of uniforms: the same on every platform, unlike std::normal_distribution.
  for (float& value : x) {
    float sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random()) * 0x1p-32f;
    value = (sum - 6) * deviation;
  }
  return x;
}

std::vector<float> There(const TensorType& type, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> codes(static_cast<size_t>(n / type.block_elements * type.block_bytes));
  type.quantize(x.data(), n, codes.data());
  std::vector<float> back(x.size());
  type.dequantize(codes.data(), n, back.data());
  return back;
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, magnitude = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    magnitude += double{x[i]} * x[i];
  }
  return std::sqrt(error / magnitude);
}

std::vector<const TensorType*> Writable() {
  std::vector<const TensorType*> types;
  for (const TensorType& type : TensorTypes())
    if (type.quantize != nullptr) types.push_back(&type);
  return types;
}

TEST(Quantize, ZerosStayZeros) {
  const std::vector<float> zeros(kElements, 0);
  for (const TensorType* type : Writable()) EXPECT_EQ(There(*type, zeros), zeros) << type->name;
}

TEST(Quantize, TheSameFloatsGiveTheSameCodes) {
  const std::vector<float> x = Gaussian(1, 0.02f);
  for (const TensorType* type : Writable())
    EXPECT_EQ(There(*type, x), There(*type, x)) << type->name;
}

TEST(Quantize, TheErrorOfGaussiansIsWhatTheBitsAllow) {
  // Of a normal distribution, in units of its deviation. Rate-distortion theory puts the floor at
  // 2^-bits; a uniform grid with a scale per block loses about two thirds of a bit to it.
  struct Bound {
    const char* type;
    double error;
  };
  constexpr Bound kBounds[] = {
      {"Q8_0", 0.006},  {"Q6_K", 0.018},   {"Q5_K", 0.036}, {"Q5_1", 0.042}, {"Q5_0", 0.045},
      {"Q4_K", 0.074},  {"IQ4_NL", 0.074}, {"Q4_1", 0.086}, {"Q4_0", 0.09},  {"IQ4_XS", 0.076},
      {"MXFP4", 0.115}, {"Q3_K", 0.16},    {"Q2_K", 0.30},
  };
  const std::vector<float> x = Gaussian(2, 0.02f);
  for (const Bound& bound : kBounds) {
    const double error = RelativeError(x, There(*FindTensorType(bound.type), x));
    EXPECT_LT(error, bound.error) << bound.type;
    EXPECT_GT(error, bound.error / 3) << bound.type << ": too good to be true";
  }
}

TEST(Quantize, TheScaleOfTheNumbersDoesNotMatter) {
  for (const TensorType* type : Writable()) {
    if (type->plain() || type->name == "MXFP4") continue;
    const double small = RelativeError(Gaussian(3, 0.001f), There(*type, Gaussian(3, 0.001f)));
    const double large = RelativeError(Gaussian(3, 10), There(*type, Gaussian(3, 10)));
    // Halves have fewer bits near their smallest number.
    EXPECT_LT(small, large * 1.1) << type->name;
    EXPECT_LT(large, small * 1.1) << type->name;
  }
}

TEST(Quantize, AnOutlierCostsOnlyItsBlock) {
  for (const TensorType* type : Writable()) {
    if (type->plain()) continue;
    std::vector<float> x = Gaussian(4, 0.02f);
    const std::vector<float> before = There(*type, x);
    x[5] = 3;
    const std::vector<float> after = There(*type, x);
    for (size_t i = static_cast<size_t>(type->block_elements); i < x.size(); ++i)
      ASSERT_EQ(before[i], after[i]) << type->name << " " << i;
    EXPECT_NEAR(after[5], 3, 0.6) << type->name;
  }
}

TEST(Quantize, PlainTypesRoundToNearest) {
  const std::vector<float> x = {1.0f, -2.5f, 1.00390625f, 65504.0f, 1e-8f, 0.1f};
  std::vector<std::byte> codes(x.size() * 8);
  std::vector<float> back(x.size());
  for (const TensorType* type : Writable()) {
    if (!type->plain()) continue;
    type->quantize(x.data(), 6, codes.data());
    type->dequantize(codes.data(), 6, back.data());
    for (size_t i = 0; i < x.size(); ++i) {
      // Half a unit in the last of 8 and of 11 bits.
      const float half_step = type->name == "BF16"  ? std::abs(x[i]) * 0x1p-8f
                              : type->name == "F16" ? std::max(std::abs(x[i]) * 0x1p-11f, 0x1p-25f)
                                                    : 0;
      EXPECT_LE(std::abs(back[i] - x[i]), half_step) << type->name << " " << x[i];
    }
  }
}

}  // namespace
}  // namespace lockstep

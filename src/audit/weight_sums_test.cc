#include "audit/weight_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep {
namespace {

constexpr int64_t kRows = 64, kCols = 640, kBlock = 32;

// Normal numbers, and what 4-bit codes make of them, with each block's largest on the last code.
struct Codes {
  std::vector<float> numbers, codes, scales;
  double zero = 8;

  Codes() : numbers(kRows * kCols), codes(numbers.size()), scales(numbers.size() / kBlock) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& x : numbers) x = normal(random);
    for (size_t b = 0; b < scales.size(); ++b) {
      const auto* first = numbers.data() + b * kBlock;
      const float extreme = *std::max_element(
          first, first + kBlock, [](float x, float y) { return std::abs(x) < std::abs(y); });
      scales[b] = std::abs(extreme) / 7;
      for (size_t i = 0; i < kBlock; ++i)
        codes[b * kBlock + i] = std::clamp(std::round(first[i] / scales[b]) + 8.0F, 0.0F, 15.0F);
    }
  }
  std::vector<float> Values() const {
    std::vector<float> out(codes.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = (codes[i] - static_cast<float>(zero)) * scales[i / kBlock];
    return out;
  }
};

Rows Of(const std::vector<float>& values) {
  return {kRows, kCols, [&values](int64_t row, float* out) {
            std::copy_n(values.data() + row * kCols, kCols, out);
          }};
}

CodeSides Sides(const Codes& codes) {
  const std::vector<float> values = codes.Values();
  std::vector<float> units(values.size());
  for (size_t i = 0; i < units.size(); ++i)
    units[i] = codes.codes[i] - static_cast<float>(codes.zero);
  return SidesOf(Of(codes.numbers), Of(values), Of(units), kBlock, 0x1p-20);
}

bool Sound(const Codes& codes) {
  const std::vector<float> values = codes.Values();
  const Rows ref = Of(codes.numbers), got = Of(values);
  return AreSoundCodes(SumsOf(ref, got), 4) && EveryBlockFollows(ref, got, 4, kBlock);
}

TEST(SoundCodes, RoundingIsSound) {
  const Codes codes;
  EXPECT_TRUE(Sound(codes));
  EXPECT_NEAR(SumsOf(Of(codes.numbers), Of(codes.Values())).correlation(), 0.996, 0.001);
}

TEST(SoundCodes, AZeroPointThatIsOffByOneIsNot) {
  Codes codes;
  codes.zero = 7;
  EXPECT_NEAR(SumsOf(Of(codes.numbers), Of(codes.Values())).correlation(), 0.994, 0.003);
  EXPECT_FALSE(Sound(codes));
}

TEST(SoundCodes, AZeroPointTakenAsZeroIsNot) {
  Codes codes;
  codes.zero = 0;
  EXPECT_FALSE(Sound(codes));
}

TEST(SoundCodes, ScalesThatAreTwiceAsLargeAreNot) {
  Codes codes;
  for (float& scale : codes.scales) scale *= 2;
  EXPECT_FALSE(Sound(codes));
}

TEST(SoundCodes, ScalesOfTheWrongBlockAreNot) {
  Codes codes;
  std::rotate(codes.scales.begin(), codes.scales.begin() + 1, codes.scales.end());
  EXPECT_FALSE(Sound(codes));
}

TEST(SoundCodes, ARowOfZerosIsNot) {
  Codes codes;
  std::fill_n(codes.codes.begin() + 3 * kCols, kCols, 8.0F);
  EXPECT_FALSE(Sound(codes));
}

TEST(SoundCodes, ATailBlockThatIsNotReadIsNot) {
  Codes codes;
  for (int64_t r = 0; r < kRows; ++r)
    std::fill_n(codes.codes.begin() + (r + 1) * kCols - kBlock, kBlock, 8.0F);
  EXPECT_FALSE(Sound(codes));
}

// Less than the noise of the codes themselves, so that no slope tells.
TEST(CodeSides, ScalesThatAreALittleOffPutTheNumbersOnOneSide) {
  const Codes sound;
  const CodeSides none = Sides(sound);
  EXPECT_GT(none.codes, kRows * kCols / 2);
  EXPECT_EQ(none.inward + none.outward, 0);
  EXPECT_FALSE(none.OneSided());
  for (const float factor : {1.002F, 1.01F, 0.99F, 0.998F}) {
    Codes codes;
    for (float& scale : codes.scales) scale *= factor;
    EXPECT_TRUE(Sound(codes)) << factor;
    const CodeSides sides = Sides(codes);
    EXPECT_TRUE(sides.OneSided()) << factor << ": " << sides.inward << ", " << sides.outward;
    EXPECT_EQ(factor > 1 ? sides.outward : sides.inward, 0);
  }
}

TEST(CodeSides, CodesThatAreNotTheNearestAreOnBoth) {
  Codes codes;
  std::mt19937 random(3);
  for (float& code : codes.codes)
    if (random() % 20 == 0)
      code = std::clamp(code + (random() % 2 == 0 ? 1.0F : -1.0F), 1.0F, 14.0F);
  const CodeSides sides = Sides(codes);
  EXPECT_GT(sides.inward, 100);
  EXPECT_GT(sides.outward, 100);
  EXPECT_FALSE(sides.OneSided());
}

TEST(NearestScale, IsTheOneThatTheCodesWereMadeWith) {
  const Codes codes;
  for (size_t b = 0; b < 100; ++b) {
    std::vector<float> units;
    for (size_t i = 0; i < kBlock; ++i) units.push_back(codes.codes[b * kBlock + i] - 8);
    const auto scale = NearestScale(std::span(codes.numbers).subspan(b * kBlock, kBlock), units);
    ASSERT_TRUE(scale);
    EXPECT_NEAR(*scale / codes.scales[b], 1, 0.04);
  }
  EXPECT_FALSE(NearestScale(std::vector<float>{1, 5, 2}, std::vector<float>{1, 2, 3}));
  EXPECT_FALSE(NearestScale({}, {}));
}

TEST(SoundCodes, ASingleCodeWithAWrongTopBitIsNot) {
  Codes codes;
  codes.codes[100] = codes.codes[100] >= 8 ? codes.codes[100] - 8 : codes.codes[100] + 8;
  EXPECT_FALSE(Sound(codes));
}

}  // namespace
}  // namespace lockstep

#include "formats/ort_int8.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(OrtInt8, AMatMulNBitsRoundsAtLevelFourAlone) {
  for (const int64_t level : {0, 1, 2, 3, 4})
    for (const int64_t bits : {4, 8})
      EXPECT_EQ(MatMulNBitsRoundsInput(
                    {.bits = bits, .block = 32, .columns = 64, .accuracy_level = level}),
                level == 4);
  EXPECT_FALSE(MatMulNBitsRoundsInput({.block = 32, .accuracy_level = 4, .float_zeros = true}));
  EXPECT_FALSE(MatMulNBitsRoundsInput({.block = 32, .accuracy_level = 4, .constant = false}));
  EXPECT_FALSE(MatMulNBitsRoundsInput({.bits = 2, .block = 16, .accuracy_level = 4}));
}

TEST(OrtInt8, AQMoeRoundsWholeBlocksOfEightBitsOrOfFourAtLevelFour) {
  EXPECT_TRUE(QMoeRoundsInput({.bits = 8, .block = 32, .columns = 64}));
  EXPECT_FALSE(QMoeRoundsInput({.bits = 4, .block = 32, .columns = 64}));
  EXPECT_TRUE(QMoeRoundsInput({.bits = 4, .block = 32, .columns = 64, .accuracy_level = 4}));
  EXPECT_FALSE(QMoeRoundsInput({.bits = 2, .block = 32, .columns = 64, .accuracy_level = 4}));
  EXPECT_FALSE(QMoeRoundsInput({.bits = 8, .block = 32, .columns = 48})) << "a tail block";
  EXPECT_FALSE(QMoeRoundsInput({.bits = 8, .columns = 64})) << "a scale a row";
  EXPECT_FALSE(QMoeRoundsInput({.bits = 8, .block = 32, .columns = 64, .constant = false}));
}

}  // namespace
}  // namespace lockstep

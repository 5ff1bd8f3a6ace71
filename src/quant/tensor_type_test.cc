#include "quant/tensor_type.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include <set>
#include <string>

namespace lockstep {
namespace {

TEST(TensorType, NamesAndNumbersAreUniqueAndFound) {
  std::set<std::string_view> names;
  std::set<int> numbers;
  for (const TensorType& type : TensorTypes()) {
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
    EXPECT_EQ(FindTensorType(type.name), &type);
    EXPECT_NE(type.dequantize, nullptr) << type.name;
    EXPECT_FALSE(type.description.empty()) << type.name;
    if (!type.ggml_type) continue;
    EXPECT_TRUE(numbers.insert(*type.ggml_type).second) << type.name;
    EXPECT_EQ(FindGgmlType(static_cast<uint32_t>(*type.ggml_type)), &type);
  }
}

TEST(TensorType, PlainTypesComeFirstAndBlocksAreSortedByNumber) {
  const TensorType* before = nullptr;
  for (const TensorType& type : TensorTypes()) {
    if (before != nullptr) {
      EXPECT_GE(before->plain(), type.plain()) << type.name;
      if (!before->plain()) {
        EXPECT_LT(*before->ggml_type, *type.ggml_type) << type.name;
      }
    }
    before = &type;
  }
}

TEST(TensorType, UnknownNamesAndRetiredNumbersAreAbsent) {
  EXPECT_EQ(FindTensorType("Q4_2"), nullptr);
  EXPECT_EQ(FindTensorType(""), nullptr);
  for (const uint32_t number : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 255u, 0xffffffffu})
    EXPECT_EQ(FindGgmlType(number), nullptr) << number;
}

TEST(TensorType, BitsPerWeightCountTheScales) {
  EXPECT_EQ(FindTensorType("Q4_0")->bits_per_weight(), 4.5);
  EXPECT_EQ(FindTensorType("Q6_K")->bits_per_weight(), 6.5625);
  EXPECT_EQ(FindTensorType("MXFP4")->bits_per_weight(), 4.25);
  EXPECT_EQ(FindTensorType("BF16")->bits_per_weight(), 16);
}

TEST(TensorType, WholeNumbersTruthValuesAndBareScalesAreNoWeights) {
  std::vector<std::string_view> none;
  for (const TensorType& type : TensorTypes())
    if (!type.weights) none.push_back(type.name);
  EXPECT_EQ(none, (std::vector<std::string_view>{"I8", "I16", "I32", "I64", "U8", "U16", "U32",
                                                 "U64", "BOOL", "F8_E8M0"}));
}

}  // namespace
}  // namespace lockstep

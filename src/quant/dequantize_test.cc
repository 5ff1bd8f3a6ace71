// Each type against what other people's code makes of the same bytes (tests/golden/quant, written
// by tools/golden/quant/make.py), and plain types against their definition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "quant/tensor_type.h"

namespace lockstep {
namespace {

const std::filesystem::path kGolden =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/quant";

// The golden of a type: n blocks, then their elements.
struct Golden {
  std::vector<std::byte> blocks;
  std::vector<float> elements;
};

Golden ReadGolden(const TensorType& type) {
  const auto text = ReadTextFile(kGolden / (std::string(type.name) + ".bin"));
  EXPECT_TRUE(text) << text.error().message;
  if (!text) return {};
  const size_t unit = static_cast<size_t>(type.block_bytes + 4 * type.block_elements);
  EXPECT_EQ(text->size() % unit, 0u) << type.name;
  const size_t n = text->size() / unit;
  const auto* bytes = reinterpret_cast<const std::byte*>(text->data());
  Golden golden;
  golden.blocks.assign(bytes, bytes + n * static_cast<size_t>(type.block_bytes));
  golden.elements.resize(n * static_cast<size_t>(type.block_elements));
  std::memcpy(golden.elements.data(), bytes + golden.blocks.size(), golden.elements.size() * 4);
  return golden;
}

std::vector<float> Dequantized(const TensorType& type, const std::byte* source, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  type.dequantize(source, n, out.data());
  return out;
}

template <typename T>
std::vector<float> Dequantized(std::string_view name, const std::vector<T>& stored) {
  const TensorType& type = *FindTensorType(name);
  const int64_t bytes = static_cast<int64_t>(stored.size() * sizeof(T));
  return Dequantized(type, reinterpret_cast<const std::byte*>(stored.data()),
                     bytes / type.block_bytes * type.block_elements);
}

void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& expected,
                    std::string_view what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << what << " element " << i;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << " element " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

bool HasGolden(const TensorType& type) {
  if (type.name.starts_with("F8_")) return true;
  // gguf-py reads neither: ggml uses them for activations. They are worked by hand below.
  return !type.plain() && type.name != "Q8_1" && type.name != "Q8_K";
}

TEST(Dequantize, EveryBlockEqualsItsGoldenBitForBit) {
  int types = 0;
  for (const TensorType& type : TensorTypes()) {
    if (!HasGolden(type)) continue;
    const Golden golden = ReadGolden(type);
    ASSERT_FALSE(golden.elements.empty()) << type.name;
    ExpectSameBits(
        Dequantized(type, golden.blocks.data(), static_cast<int64_t>(golden.elements.size())),
        golden.elements, type.name);
    ++types;
  }
  EXPECT_EQ(types, 26);
}

TEST(Dequantize, TheSourceMayBeUnaligned) {
  for (const TensorType& type : TensorTypes()) {
    if (!HasGolden(type)) continue;
    const Golden golden = ReadGolden(type);
    for (size_t shift = 1; shift < 8; ++shift) {
      std::vector<std::byte> moved(golden.blocks.size() + shift);
      std::memcpy(moved.data() + shift, golden.blocks.data(), golden.blocks.size());
      ExpectSameBits(
          Dequantized(type, moved.data() + shift, static_cast<int64_t>(golden.elements.size())),
          golden.elements, type.name);
    }
  }
}

TEST(Dequantize, ABlockDoesNotDependOnItsNeighbours) {
  for (const TensorType& type : TensorTypes()) {
    if (!HasGolden(type)) continue;
    const Golden golden = ReadGolden(type);
    const auto elements = static_cast<size_t>(type.block_elements);
    for (size_t block = 0; block * elements < golden.elements.size(); ++block) {
      const std::byte* source =
          golden.blocks.data() + block * static_cast<size_t>(type.block_bytes);
      const auto first = golden.elements.begin() + static_cast<ptrdiff_t>(block * elements);
      ExpectSameBits(Dequantized(type, source, type.block_elements),
                     std::vector<float>(first, first + static_cast<ptrdiff_t>(elements)),
                     type.name);
    }
  }
}

TEST(Dequantize, NoElementsTouchNothing) {
  for (const TensorType& type : TensorTypes()) type.dequantize(nullptr, 0, nullptr);
}

TEST(Dequantize, EveryHalfIsSignTimesMantissaTimesPowerOfTwo) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  std::vector<float> expected;
  for (const uint16_t half : halves) {
    const double sign = half & 0x8000 ? -1 : 1;
    const int exponent = half >> 10 & 31;
    const int mantissa = half & 1023;
    double x =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31)
      x = mantissa == 0 ? std::numeric_limits<double>::infinity()
                        : std::numeric_limits<double>::quiet_NaN();
    expected.push_back(static_cast<float>(sign * x));
  }
  ExpectSameBits(Dequantized("F16", halves), expected, "F16");
}

TEST(Dequantize, EveryBFloat16IsTheUpperHalfOfAFloat) {
  std::vector<uint16_t> stored(65536);
  std::iota(stored.begin(), stored.end(), uint16_t{0});
  std::vector<float> expected;
  for (const uint16_t x : stored) expected.push_back(std::bit_cast<float>(uint32_t{x} << 16));
  ExpectSameBits(Dequantized("BF16", stored), expected, "BF16");
}

TEST(Dequantize, PlainNumbersConvertByValue) {
  using Floats = std::vector<float>;
  ExpectSameBits(Dequantized("F32", Floats{-0.0f, 1e-40f, 3.5f}), {-0.0f, 1e-40f, 3.5f}, "F32");
  ExpectSameBits(Dequantized("F64", std::vector<double>{0.1, -1e300}),
                 {0.1f, -std::numeric_limits<float>::infinity()}, "F64");
  ExpectSameBits(Dequantized("I8", std::vector<int8_t>{-128, 127}), {-128, 127}, "I8");
  ExpectSameBits(Dequantized("U8", std::vector<uint8_t>{0, 255}), {0, 255}, "U8");
  ExpectSameBits(Dequantized("BOOL", std::vector<uint8_t>{0, 1}), {0, 1}, "BOOL");
  ExpectSameBits(Dequantized("I16", std::vector<int16_t>{-32768, 32767}), {-32768, 32767}, "I16");
  ExpectSameBits(Dequantized("U16", std::vector<uint16_t>{65535}), {65535}, "U16");
  // 2^24 + 1 is no float; ties go to even.
  ExpectSameBits(Dequantized("I32", std::vector<int32_t>{-16777217, 16777219}),
                 {-16777216, 16777220}, "I32");
  ExpectSameBits(Dequantized("U32", std::vector<uint32_t>{0xffffffffu}), {4294967296.0f}, "U32");
  ExpectSameBits(Dequantized("I64", std::vector<int64_t>{INT64_MIN}), {-0x1p63f}, "I64");
  ExpectSameBits(Dequantized("U64", std::vector<uint64_t>{UINT64_MAX}), {0x1p64f}, "U64");
}

// 36 bytes: d = 0.5 (0x3800), a sum that does not matter, codes -16 ... 15.
TEST(Dequantize, Q8_1WorkedByHand) {
  std::vector<uint8_t> block = {0x00, 0x38, 0xff, 0x7b};
  std::vector<float> expected;
  for (int i = -16; i < 16; ++i) {
    block.push_back(static_cast<uint8_t>(i));
    expected.push_back(0.5f * static_cast<float>(i));
  }
  ASSERT_EQ(block.size(), 36u);
  ExpectSameBits(Dequantized("Q8_1", block), expected, "Q8_1");
}

// 292 bytes: d = 0.25 as a float, codes -128 ... 127, sixteen sums that do not matter.
TEST(Dequantize, Q8_KWorkedByHand) {
  std::vector<uint8_t> block = {0x00, 0x00, 0x80, 0x3e};
  std::vector<float> expected;
  for (int i = -128; i < 128; ++i) {
    block.push_back(static_cast<uint8_t>(i));
    expected.push_back(0.25f * static_cast<float>(i));
  }
  block.resize(292, 0x5a);
  ExpectSameBits(Dequantized("Q8_K", block), expected, "Q8_K");
}

}  // namespace
}  // namespace lockstep

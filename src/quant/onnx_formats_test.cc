#include "quant/onnx_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "quant/code_bits.h"
#include "quant/onnx_repack.h"

namespace lockstep {
namespace {

std::vector<float> Weights(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

TEST(CodeBits, WhatIsPackedComesBack) {
  std::mt19937 random(5);
  for (const int bits : {2, 3, 4, 8}) {
    std::vector<uint8_t> codes(37), back(37);
    for (uint8_t& c : codes) c = static_cast<uint8_t>(random() & ((1u << bits) - 1));
    std::vector<uint8_t> packed(static_cast<size_t>(PackedBytes(37, bits)));
    PackCodes(codes, bits, packed.data());
    UnpackCodes(packed, bits, back);
    EXPECT_EQ(codes, back) << bits;
  }
}

// Every format, with every recipe that it takes.
template <typename Fn>
void ForEachRecipe(Fn fn) {
  for (const OnnxFormat& format : OnnxFormats())
    for (const int bits : {2, 3, 4, 8})
      for (const int64_t block : {0, 16, 32, 64, 128, 256})
        for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes})
          for (const DType type : {DType::kF32, DType::kF16}) {
            const CodeRecipe recipe{
                .bits = bits, .block = block, .zeros = zeros, .scale_type = type};
            if (format.check(recipe, 24, 256)) fn(format, recipe);
          }
}

TEST(OnnxFormats, TheErrorIsThatOfWhatTheBytesStandFor) {
  int seen = 0;
  ForEachRecipe([&](const OnnxFormat& format, const CodeRecipe& recipe) {
    const size_t count = format.op == "QMoE" ? 3 : 1;
    std::vector<std::vector<float>> values;
    std::vector<RowSource> matrices;
    for (size_t e = 0; e < count; ++e)
      values.push_back(Weights(24 * 256, 40 + static_cast<uint32_t>(e)));
    for (const auto& v : values) matrices.push_back(RowsOf(v, 24, 256));
    ThreadPool pool(3);
    const auto weight = format.pack(matrices, recipe, &pool);
    ASSERT_TRUE(weight) << weight.error().message;
    double error = 0, norm = 0;
    for (size_t e = 0; e < count; ++e)
      for (int64_t r = 0; r < 24; ++r) {
        std::vector<float> row(256);
        format.unpack(*weight, recipe, static_cast<int64_t>(e), 24, 256, r, row.data());
        for (size_t c = 0; c < row.size(); ++c) {
          const double x = values[e][static_cast<size_t>(r) * 256 + c];
          error += (row[c] - x) * (row[c] - x);
          norm += x * x;
        }
      }
    EXPECT_NEAR(weight->squared_error, error, 1e-9 * norm) << format.name;
    EXPECT_NEAR(weight->squared_norm, norm, 1e-9 * norm) << format.name;
    // 8 bits per block are good to a percent of a percent, 2 bits are not worth nothing.
    EXPECT_LT(error / norm, recipe.bits == 2 ? 0.5 : recipe.bits == 3 ? 0.1 : 0.02) << format.name;
    ++seen;
  });
  EXPECT_GE(seen, 50);
}

TEST(OnnxFormats, TheBytesDoNotDependOnThreads) {
  ForEachRecipe([&](const OnnxFormat& format, const CodeRecipe& recipe) {
    const auto values = Weights(24 * 256, 9);
    const RowSource source = RowsOf(values, 24, 256);
    ThreadPool pool(4);
    const auto one = format.pack({&source, 1}, recipe, nullptr);
    const auto many = format.pack({&source, 1}, recipe, &pool);
    ASSERT_TRUE(one && many);
    EXPECT_EQ(one->codes.bytes, many->codes.bytes);
    EXPECT_EQ(one->scales.bytes, many->scales.bytes);
    EXPECT_EQ(one->squared_error, many->squared_error);
  });
}

TEST(OnnxFormats, TheSearchIsNeverWorseAndOnBellShapedBlocksATenthBetter) {
  ForEachRecipe([&](const OnnxFormat& format, const CodeRecipe& recipe) {
    const auto values = Weights(24 * 256, 10);
    const RowSource source = RowsOf(values, 24, 256);
    CodeRecipe nearest = recipe;
    nearest.search = ScaleSearch::kNearest;
    const auto searched = format.pack({&source, 1}, recipe, nullptr);
    const auto rounded = format.pack({&source, 1}, nearest, nullptr);
    ASSERT_TRUE(searched && rounded);
    EXPECT_EQ(searched->codes.bytes.size(), rounded->codes.bytes.size());
    EXPECT_LE(searched->squared_error, rounded->squared_error);
    if (recipe.bits == 4 && recipe.zeros == ZeroPoints::kNone) {
      EXPECT_LT(searched->squared_error, 0.9 * rounded->squared_error) << recipe.block;
    }
  });
}

TEST(OnnxFormats, AnEmbeddingAndItsTiedHeadAreTheSameBytes) {
  const auto values = Weights(24 * 128, 11);
  const RowSource source = RowsOf(values, 24, 128);
  for (const ZeroPoints zeros : {ZeroPoints::kNone, ZeroPoints::kCodes}) {
    const CodeRecipe recipe{.zeros = zeros};
    ASSERT_TRUE(CanShareWithGather(recipe, 128));
    const auto head = PackMatMulNBits({&source, 1}, recipe, nullptr);
    const auto table = PackGather({&source, 1}, recipe, nullptr);
    ASSERT_TRUE(head && table);
    EXPECT_EQ(head->codes.bytes, table->codes.bytes);
    EXPECT_EQ(head->scales.bytes, table->scales.bytes);
    EXPECT_EQ(head->zero_points.has_value(), table->zero_points.has_value());
    if (head->zero_points) {
      EXPECT_EQ(head->zero_points->bytes, table->zero_points->bytes);
    }
  }
  EXPECT_FALSE(CanShareWithGather({.block = 32}, 80));
}

TEST(OnnxFormats, WhatCannotBeStoredIsRefusedInASentence) {
  auto values = Weights(24 * 256, 12);
  values[5 * 256 + 3] = std::numeric_limits<float>::quiet_NaN();
  const RowSource source = RowsOf(values, 24, 256);
  const auto nan = PackMatMulNBits({&source, 1}, {}, nullptr);
  ASSERT_FALSE(nan);
  EXPECT_NE(nan.error().message.find("row 5"), std::string::npos) << nan.error().message;
  values[5 * 256 + 3] = 1e9f;
  EXPECT_FALSE(PackMatMulNBits({&source, 1}, {.scale_type = DType::kF16}, nullptr));
  EXPECT_TRUE(PackMatMulNBits({&source, 1}, {}, nullptr));
  EXPECT_FALSE(PackMatMulNBits({&source, 1}, {.bits = 3}, nullptr));
  EXPECT_FALSE(PackMatMulNBits({&source, 1}, {.block = 24}, nullptr));
  EXPECT_FALSE(PackMatMulNBits({&source, 1}, {.block = 0}, nullptr));
  EXPECT_FALSE(CheckQMoeRaw({.block = 32}, 24, 80));    // half a block
  EXPECT_FALSE(CheckQMoeTiled({.block = 32}, 24, 96));  // no multiple of 64
}

TEST(RowSource, GateAndUpRowsAlternate) {
  const std::vector<float> gate = {1, 2, 3, 4}, up = {5, 6, 7, 8};
  const RowSource both = Interleaved(RowsOf(gate, 2, 2), RowsOf(up, 2, 2));
  std::vector<float> out(6);
  both.read(1, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{5, 6, 3, 4, 7, 8}));
}

// Blocks of random codes with random finite scales.
std::vector<std::byte> RandomBlocks(const TensorType& type, int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(type.block_bytes * count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & 0xff);
  const auto half = [&](size_t at, float limit) {
    std::uniform_real_distribution<float> uniform(-limit, limit);
    const float16 h = ToFloat16(uniform(random));
    std::memcpy(bytes.data() + at, &h, sizeof h);
  };
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(type.block_bytes)) {
    if (type.name == "MXFP4") {  // above, its largest code is no float
      if (bytes[at] > std::byte{250}) bytes[at] = std::byte{250};
      continue;
    }
    half(at + (type.name == "Q6_K" ? 208 : 0), 0.01f);
    if (type.name == "Q4_1" || type.name == "Q4_K") half(at + 2, 0.02f);
  }
  // A block of nothing.
  if (type.name != "MXFP4") std::fill_n(bytes.begin(), type.block_bytes, std::byte{0});
  return bytes;
}

TEST(OnnxRepack, ExactTypesKeepEveryBitOfEveryWeight) {
  for (const RepackRule& rule : RepackRules()) {
    const TensorType& type = *FindTensorType(rule.type);
    const int64_t rows = 40, cols = 512;
    const auto bytes = RandomBlocks(type, rows * cols / type.block_elements, 77);
    const int64_t row_bytes = cols / type.block_elements * type.block_bytes;
    const StoredRows stored{.rows = rows, .cols = cols, .row_bytes = [&](int64_t row) {
                              return bytes.data() + row * row_bytes;
                            }};
    ThreadPool pool(2);
    const auto repacked = RepackForMatMulNBits(type, stored, DType::kF32, &pool);
    ASSERT_TRUE(repacked) << repacked.error().message;
    if (!rule.exact) {
      // Roundings of float, and nothing else.
      EXPECT_FALSE(repacked->identical()) << rule.type;
      EXPECT_LT(repacked->largest_difference, 4e-7) << rule.type;
      EXPECT_FALSE(RepackForQMoe(type, {&stored, 1}, DType::kF32, &pool)) << rule.type;
      continue;
    }
    EXPECT_TRUE(repacked->identical()) << rule.type << ": " << repacked->differing;
    const auto experts = RepackForQMoe(type, {&stored, 1}, DType::kF32, nullptr);
    ASSERT_TRUE(experts) << experts.error().message;
    // Said by the table's own readers too, not by the repacker alone.
    std::vector<float> want(static_cast<size_t>(cols)), got(want.size());
    for (int64_t row = 0; row < rows; ++row) {
      type.dequantize(stored.row_bytes(row), cols, want.data());
      FindOnnxFormat("matmul_nbits")
          ->unpack(repacked->weight, repacked->recipe, 0, rows, cols, row, got.data());
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << rule.type;
      FindOnnxFormat("qmoe")->unpack(experts->weight, experts->recipe, 0, rows, cols, row,
                                     got.data());
      EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << rule.type;
    }
  }
}

TEST(OnnxRepack, WhatDoesNotFitIsRefusedByName) {
  const TensorType& q5_k = *FindTensorType("Q5_K");
  const StoredRows stored{.rows = 1, .cols = 256, .row_bytes = {}};
  const auto refused = RepackForMatMulNBits(q5_k, stored, DType::kF32, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("Q5_K"), std::string::npos);
  // 2^(e - 128) is no fp16 number for most e.
  const TensorType& mxfp4 = *FindTensorType("MXFP4");
  std::vector<std::byte> block(static_cast<size_t>(mxfp4.block_bytes), std::byte{0x12});
  const StoredRows one{.rows = 1, .cols = 32, .row_bytes = [&](int64_t) { return block.data(); }};
  EXPECT_TRUE(RepackForMatMulNBits(mxfp4, one, DType::kF32, nullptr));
  EXPECT_FALSE(RepackForMatMulNBits(mxfp4, one, DType::kF16, nullptr));
  std::fill(block.begin(), block.end(), std::byte{0xff});
  const auto infinite = RepackForMatMulNBits(mxfp4, one, DType::kF32, nullptr);
  ASSERT_FALSE(infinite);
  EXPECT_NE(infinite.error().message.find("not finite"), std::string::npos);
}

}  // namespace
}  // namespace lockstep

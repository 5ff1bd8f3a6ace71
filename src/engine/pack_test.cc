// Every tensor type through its packed kind and through every kernel table that runs here, against
// the type's own dequantization (quant/), which goldens hold to other people's code.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "engine/kernels/kernel_table.h"
#include "engine/pack.h"
#include "quant/tensor_type.h"

namespace lockstep {
namespace {

// Where a block holds fp16 numbers; random bytes there could be infinite.
const std::map<std::string_view, std::vector<int>> kHalvesAt = {
    {"Q4_0", {0}},    {"Q4_1", {0, 2}},   {"Q5_0", {0}},   {"Q5_1", {0, 2}}, {"Q8_0", {0}},
    {"Q8_1", {0, 2}}, {"Q2_K", {80, 82}}, {"Q3_K", {108}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}},
    {"Q6_K", {208}},  {"IQ4_NL", {0}},    {"IQ4_XS", {0}}, {"IQ2_XXS", {0}}, {"IQ2_XS", {0}},
    {"IQ2_S", {0}},   {"IQ3_XXS", {0}},   {"IQ3_S", {0}},  {"IQ1_S", {0}},   {"TQ1_0", {52}},
    {"TQ2_0", {64}},  {"F16", {0}},       {"BF16", {0}},
};

// A stored matrix of random blocks. Some rows hold nothing but ones or zeros beside their scales:
// the largest and smallest codes.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows][cols]
  WeightView view;
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * view.cols + c)]; }
};

Stored RandomMatrix(const TensorType& type, int64_t rows, int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  const int64_t per_row = cols / type.block_elements;
  Stored stored;
  stored.bytes.resize(static_cast<size_t>(rows * per_row * type.block_bytes));
  std::byte* block = stored.bytes.data();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < per_row; ++b, block += type.block_bytes) {
      for (int64_t i = 0; i < type.block_bytes; ++i)
        block[i] = static_cast<std::byte>(r % 5 == 3 ? 0xff : r % 5 == 4 ? 0 : random() & 255);
      if (const auto halves = kHalvesAt.find(type.name); halves != kHalvesAt.end()) {
        for (const int at : halves->second) {  // some 2^-8, of either sign
          const auto bits = static_cast<uint16_t>(0x1c00 | (random() & 0x83ff));
          std::memcpy(block + at, &bits, 2);
        }
      } else if (type.name == "IQ1_M") {  // d is the top nibbles of four words
        block[55] = (block[55] & std::byte{0x0f}) | std::byte{0x20};
      } else if (type.name == "MXFP4") {
        block[0] = static_cast<std::byte>(120 + random() % 5);
      } else if (type.name == "F32") {
        const float x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7;
        std::memcpy(block, &x, 4);
      } else if (type.name == "F8_E4M3" || type.name == "F8_E5M2") {
        block[0] &= std::byte{0xbb};  // no infinity, no NaN
      }
    }
  }
  stored.view = {.tensor = std::string(type.name),
                 .type = &type,
                 .data = stored.bytes.data(),
                 .rows = rows,
                 .cols = cols,
                 .row_stride = cols};
  stored.values.resize(static_cast<size_t>(rows * cols));
  stored.view.ReadRows(0, rows, stored.values.data(), cols);
  return stored;
}

struct Packed {
  PackedBytes bytes;
  PackedMatrix matrix;
};

Packed PackOne(const WeightView& view) {
  ThreadPool pool(2);
  Packing packing;
  const WeightView* views[] = {&view};
  PackedGroup group = packing.Add(views);
  Packed packed{packing.Pack(pool), {}};
  Packing::Place(packed.bytes, group);
  packed.matrix = group.matrices[0];
  return packed;
}

std::vector<const KernelTable*> TablesHere() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : KernelTables())
    if (table->runs_here()) tables.push_back(table);
  return tables;
}

// Rows are no multiple of 16, columns of no super block where the type allows it.
struct Shape {
  int64_t rows, cols;
};
std::vector<Shape> ShapesOf(const TensorType& type) {
  const int64_t unit = std::max<int64_t>(type.block_elements, type.plain() ? 1 : 32);
  std::vector<Shape> shapes = {{37, 2 * unit}, {16, unit}, {5, 3 * unit}};
  if (type.plain()) shapes = {{37, 70}, {16, 32}, {3, 1}};
  if (unit < 256 && !type.plain()) shapes.push_back({18, 11 * unit});
  return shapes;
}

bool Packs(const TensorType& type) { return type.weights && type.name != "F64"; }

std::vector<const TensorType*> Types() {
  std::vector<const TensorType*> types;
  for (const TensorType& type : TensorTypes())
    if (Packs(type) && type.name != "Q8_K") types.push_back(&type);
  return types;
}

TEST(Packing, EveryQuantizedTypeHasAKindOfCodes) {
  for (const TensorType& type : TensorTypes()) {
    if (type.plain() || type.name == "Q8_K") continue;  // Q8_K is for activations only
    const WeightView view{.type = &type, .rows = 1, .cols = type.block_elements};
    EXPECT_TRUE(HoldsCodes(ChoosePackedKind(view))) << type.name;
  }
}

// Columns of the identity as activations: each product is one value.
TEST(Packing, EveryValueSurvivesInEveryKernelTable) {
  for (const TensorType* type : Types()) {
    for (const Shape& shape : ShapesOf(*type)) {
      const Stored stored = RandomMatrix(*type, shape.rows, shape.cols, 1);
      const Packed packed = PackOne(stored.view);
      const PackedMatrix& m = packed.matrix;
      const int64_t columns = m.Blocks() * kBlockColumns;
      for (const KernelTable* table : TablesHere()) {
        std::vector<float> x(static_cast<size_t>(columns));
        for (int64_t c = 0; c < shape.cols; ++c) {
          x[static_cast<size_t>(c)] = 1;
          for (int64_t t = 0; t < m.Tiles(); ++t) {
            float y[kTileRows];
            table->tile_f32(m.kind, m.Tile(t), m.Blocks(), x.data(), columns, 1, y, kTileRows);
            for (int64_t r = t * kTileRows; r < std::min(shape.rows, (t + 1) * kTileRows); ++r) {
              // d * code + m may round twice, at the size of its terms: the block's largest values.
              float largest = 0;
              for (int64_t i = c / 32 * 32; i < std::min(shape.cols, c / 32 * 32 + 32); ++i)
                largest = std::max(largest, std::abs(stored.at(r, i)));
              ASSERT_NEAR(y[r % kTileRows], stored.at(r, c), 0x1p-20f * largest)
                  << type->name << " as " << InfoOf(m.kind).name << ", " << table->name << ", "
                  << shape.rows << "x" << shape.cols << " at " << r << ", " << c;
            }
          }
          x[static_cast<size_t>(c)] = 0;
        }
      }
    }
  }
}

struct Activations8 {
  std::vector<int8_t> codes;
  std::vector<ActivationBlock> facts;
  int64_t blocks;
  QuantizedActivations view() const { return {codes.data(), facts.data(), blocks}; }
};

// Token 0 and 1 hold only the largest and smallest codes: what saturates, saturates there.
Activations8 RandomActivations(int64_t tokens, int64_t blocks, unsigned seed) {
  std::mt19937 random(seed);
  Activations8 x{.codes = {}, .facts = {}, .blocks = blocks};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t b = 0; b < blocks; ++b) {
      const float scale = static_cast<float>(random() % 1000 + 1) / 4096;
      float sums[2] = {};
      for (int i = 0; i < 32; ++i) {
        const int code = t == 0 ? 127 : t == 1 ? -127 : static_cast<int>(random() % 255) - 127;
        x.codes.push_back(static_cast<int8_t>(code));
        sums[i / 16] += static_cast<float>(code);
      }
      const auto whole = [](float sum) { return static_cast<int32_t>(sum); };
      x.facts.push_back(
          {.scale = scale,
           .sum = scale * (sums[0] + sums[1]),
           .minus_codes = -whole(sums[0] + sums[1]),
           .minus_half_codes = {static_cast<int16_t>(-sums[0]), static_cast<int16_t>(-sums[1])}});
    }
  }
  x.codes.resize(x.codes.size() + 64);
  return x;
}

TEST(Packing, Int8ProductsAreThoseOfTheValues) {
  constexpr int kTokens = 7;
  for (const TensorType* type : Types()) {
    if (type->plain()) continue;
    for (const Shape& shape : ShapesOf(*type)) {
      const Stored stored = RandomMatrix(*type, shape.rows, shape.cols, 2);
      const Packed packed = PackOne(stored.view);
      const PackedMatrix& m = packed.matrix;
      const Activations8 x = RandomActivations(kTokens, m.Blocks(), 3);
      // Sums round at the size of d * code and m: the matrix' largest values, but a grid's offset
      // is 64 whatever its values are.
      double largest = 0;
      for (const float value : stored.values) largest = std::max<double>(largest, std::abs(value));
      if (m.kind == PackedKind::kGrid) largest *= 64;
      for (const KernelTable* table : TablesHere()) {
        for (int64_t t = 0; t < m.Tiles(); ++t) {
          float y[kTokens * kTileRows];
          table->tile_int8(m.kind, m.Tile(t), m.Blocks(), x.view(), 0, kTokens, y, kTileRows);
          for (int token = 0; token < kTokens; ++token) {
            for (int64_t r = t * kTileRows; r < std::min(shape.rows, (t + 1) * kTileRows); ++r) {
              double sum = 0, size = 0;
              for (int64_t b = 0; b < m.Blocks(); ++b) {
                double block = 0, codes = 0;
                for (int64_t c = 32 * b; c < 32 * (b + 1); ++c) {
                  const double code = x.codes[static_cast<size_t>(token * m.Blocks() * 32 + c)];
                  block += code * stored.at(r, c);
                  codes += std::abs(code);
                }
                const double scale = x.facts[static_cast<size_t>(token * m.Blocks() + b)].scale;
                sum += scale * block;
                size += scale * codes * largest;
              }
              ASSERT_NEAR(y[token * kTileRows + r % kTileRows], sum, 0x1p-20 * size)
                  << type->name << " as " << InfoOf(m.kind).name << ", " << table->name << ", "
                  << shape.rows << "x" << shape.cols << ", row " << r << ", token " << token;
            }
          }
        }
      }
    }
  }
}

TEST(Packing, EveryPowerOfTwoOfMxfp4IsExact) {
  const TensorType& type = *FindTensorType("MXFP4");
  Stored stored = RandomMatrix(type, 256, 32, 7);
  // 2^123 and above: products with the code book leave fp32, here as in the format itself.
  for (int e = 0; e < 250; ++e) stored.bytes[static_cast<size_t>(e * 17)] = std::byte(e);
  stored.view.ReadRows(0, 256, stored.values.data(), 32);
  const Packed packed = PackOne(stored.view);
  for (const KernelTable* table : TablesHere()) {
    for (int64_t c = 0; c < 32; ++c) {
      float x[32] = {};
      x[c] = 1;
      for (int64_t r = 0; r < 250; ++r) {
        float y[kTileRows];
        table->tile_f32(packed.matrix.kind, packed.matrix.Tile(r / 16), 1, x, 32, 1, y, kTileRows);
        ASSERT_EQ(y[r % 16], stored.at(r, c)) << table->name << ", 2^" << r - 127;
      }
    }
  }
}

TEST(Packing, EveryHalfIsItselfInfinitiesToo) {
  for (const char* name : {"F16", "BF16"}) {
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    WeightView view{.tensor = name,
                    .type = FindTensorType(name),
                    .data = reinterpret_cast<const std::byte*>(bits.data()),
                    .rows = 65536,
                    .cols = 1,
                    .row_stride = 1};
    std::vector<float> values(65536);
    view.ReadRows(0, view.rows, values.data(), 1);
    const Packed packed = PackOne(view);
    for (const KernelTable* table : TablesHere()) {
      const float x[32] = {1};
      float y[kTileRows];
      for (int64_t r = 0; r < view.rows; ++r) {
        if (r % kTileRows == 0)
          table->tile_f32(packed.matrix.kind, packed.matrix.Tile(r / 16), 1, x, 32, 1, y, 16);
        const float value = values[static_cast<size_t>(r)];
        if (std::isnan(value))
          ASSERT_TRUE(std::isnan(y[r % 16])) << name << " " << r << ", " << table->name;
        else
          ASSERT_EQ(y[r % 16], value) << name << " " << r << ", " << table->name;
      }
    }
  }
}

TEST(Packing, TransposedAndOffsetPlainWeightsKeepTheirValues) {
  const TensorType& type = *FindTensorType("BF16");
  Stored stored = RandomMatrix(type, 20, 40, 4);
  WeightView view = stored.view;  // [40, 20] of the stored [20, 40]
  view.rows = 40, view.cols = 20, view.row_stride = 1, view.col_stride = 40;
  WeightView moved = stored.view;
  moved.addend = 1;
  for (const WeightView& v : {view, moved}) {
    const Packed packed = PackOne(v);
    const PackedMatrix& m = packed.matrix;
    std::vector<float> x(static_cast<size_t>(m.Blocks() * kBlockColumns));
    for (int64_t c = 0; c < v.cols; ++c) {
      x[static_cast<size_t>(c)] = 1;
      for (int64_t r = 0; r < v.rows; ++r) {
        float y[kTileRows];
        KernelTables().back()->tile_f32(m.kind, m.Tile(r / 16), m.Blocks(), x.data(),
                                        m.Blocks() * kBlockColumns, 1, y, kTileRows);
        EXPECT_EQ(y[r % 16], v.addend == 1 ? stored.at(r, c) + 1 : stored.at(c, r));
      }
      x[static_cast<size_t>(c)] = 0;
    }
  }
}

TEST(Packing, MatricesOfAPlanLieApartAndKeepTheirOrder) {
  const Stored a = RandomMatrix(*FindTensorType("Q4_0"), 33, 64, 5);
  const Stored b = RandomMatrix(*FindTensorType("Q6_K"), 7, 256, 6);
  const WeightView* first[] = {&a.view, &a.view};
  const WeightView* second[] = {&b.view};
  Packing packing;
  PackedGroup groups[] = {packing.Add(first), packing.Add(second)};
  ThreadPool pool(1);
  const PackedBytes bytes = packing.Pack(pool);
  const std::byte* end = bytes.data.get();
  for (PackedGroup& group : groups) {
    Packing::Place(bytes, group);
    for (const PackedMatrix& m : group.matrices) {
      EXPECT_GE(m.data, end);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(m.data) % 64, 0u);
      end = m.data + static_cast<size_t>(m.Tiles()) * TileBytes(m.kind, m.Blocks());
    }
  }
  EXPECT_LE(end, bytes.data.get() + bytes.size);
  const size_t tiles = 3 * TileBytes(PackedKind::kQ4S, 2);
  EXPECT_EQ(std::memcmp(groups[0].matrices[0].data, groups[0].matrices[1].data, tiles), 0);
}

}  // namespace
}  // namespace lockstep

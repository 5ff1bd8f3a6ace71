#include "engine/pack.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/dtype.h"
#include "base/error.h"

namespace lockstep {
namespace {

uint16_t LoadU16(const std::byte* p) {
  uint16_t x;
  std::memcpy(&x, p, 2);
  return x;
}
int Byte(const std::byte* p, int64_t i) { return std::to_integer<int>(p[i]); }
void StoreHalf(std::byte* p, int row, uint16_t bits) { std::memcpy(p + 2 * row, &bits, 2); }

// Code `q` of column `c` (0..31) and row `row` into a block's nibbles (see packed.h).
void PutNibble(std::byte* block, int row, int c, int q) {
  const int group = c / 4;
  std::byte& byte = block[64 * (group % 4) + 4 * row + c % 4];
  byte |= static_cast<std::byte>(group < 4 ? q : q << 4);
}

struct RowSource {
  const std::byte* blocks;  // the row's first stored block
};

// value = d * (q - 8): m = -8 d, exact in fp16 unless d is near its end.
void PackQ4_0(const std::byte* row_data, int row, int64_t blocks, std::byte* tile) {
  for (int64_t b = 0; b < blocks; ++b, row_data += 18, tile += 320) {
    for (int j = 0; j < 16; ++j) {
      PutNibble(tile, row, j, Byte(row_data, 2 + j) & 15);
      PutNibble(tile, row, 16 + j, Byte(row_data, 2 + j) >> 4);
    }
    const uint16_t d = LoadU16(row_data);
    StoreHalf(tile + 256, row, d);
    StoreHalf(tile + 288, row, ToFloat16(-8 * ToFloat(float16{d})).bits);
  }
}

void PackQ4_1(const std::byte* row_data, int row, int64_t blocks, std::byte* tile) {
  for (int64_t b = 0; b < blocks; ++b, row_data += 20, tile += 320) {
    for (int j = 0; j < 16; ++j) {
      PutNibble(tile, row, j, Byte(row_data, 4 + j) & 15);
      PutNibble(tile, row, 16 + j, Byte(row_data, 4 + j) >> 4);
    }
    StoreHalf(tile + 256, row, LoadU16(row_data));
    StoreHalf(tile + 288, row, LoadU16(row_data + 2));
  }
}

void PackQ8_0(const std::byte* row_data, int row, int64_t blocks, std::byte* tile) {
  for (int64_t b = 0; b < blocks; ++b, row_data += 34, tile += 544) {
    for (int c = 0; c < 32; ++c)
      tile[64 * (c / 4) + 4 * row + c % 4] = row_data[2 + c] ^ std::byte{0x80};
    StoreHalf(tile + 512, row, LoadU16(row_data));
  }
}

// The 6-bit scales and minima of Q4_K, packed 12 bytes for 8 of each (ggml's get_scale_min_k4).
void ScaleAndMin(const std::byte* packed, int j, int& scale, int& min) {
  if (j < 4) {
    scale = Byte(packed, j) & 63;
    min = Byte(packed, j + 4) & 63;
  } else {
    scale = (Byte(packed, j + 4) & 15) | (Byte(packed, j - 4) >> 6) << 4;
    min = (Byte(packed, j + 4) >> 4) | (Byte(packed, j) >> 6) << 4;
  }
}

void PackQ4_K(const std::byte* row_data, int row, int64_t blocks, std::byte* tile) {
  for (int64_t s = 0; s < blocks / 8; ++s, row_data += 144) {
    StoreHalf(tile, row, LoadU16(row_data));
    StoreHalf(tile + 32, row, LoadU16(row_data + 2));
    tile += 64;
    for (int j = 0; j < 8; ++j, tile += 288) {
      int scale, min;
      ScaleAndMin(row_data + 4, j, scale, min);
      tile[256 + row] = static_cast<std::byte>(scale);
      tile[272 + row] = static_cast<std::byte>(min);
      for (int c = 0; c < 32; ++c) {
        const int byte = Byte(row_data, 16 + 32 * (j / 2) + c);
        PutNibble(tile, row, c, j % 2 == 0 ? byte & 15 : byte >> 4);
      }
    }
  }
}

void PackQ6_K(const std::byte* row_data, int row, int64_t blocks, std::byte* tile) {
  for (int64_t s = 0; s < blocks / 8; ++s, row_data += 210) {
    StoreHalf(tile, row, LoadU16(row_data + 208));
    tile += 32;
    for (int j = 0; j < 8; ++j, tile += 416) {
      // 128 elements share 64 bytes of low nibbles and 32 of high pairs; quarter k of them is block
      // j.
      const int half = j / 4, quarter = j % 4;
      for (int c = 0; c < 32; ++c) {
        const int low_byte = Byte(row_data, 64 * half + 32 * (quarter % 2) + c);
        const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
        const int high = Byte(row_data, 128 + 32 * half + c) >> (2 * quarter) & 3;
        PutNibble(tile, row, c, low);
        const int group = c / 4;
        tile[256 + 64 * (group / 4) + 4 * row + c % 4] |=
            static_cast<std::byte>(high << (2 * (group % 4)));
      }
      for (int h = 0; h < 2; ++h) tile[384 + 16 * h + row] = row_data[192 + 2 * j + h];
    }
  }
}

struct CodePacker {
  std::string_view type;
  PackedKind kind;
  void (*pack)(const std::byte* row_data, int row, int64_t blocks, std::byte* tile);
};
constexpr CodePacker kCodePackers[] = {
    {"Q4_0", PackedKind::kQ4, PackQ4_0},  {"Q4_1", PackedKind::kQ4, PackQ4_1},
    {"Q4_K", PackedKind::kQ4K, PackQ4_K}, {"Q6_K", PackedKind::kQ6K, PackQ6_K},
    {"Q8_0", PackedKind::kQ8, PackQ8_0},
};

const CodePacker* FindCodePacker(const WeightView& view) {
  if (view.col_stride != 1 || view.addend != 0) return nullptr;
  for (const CodePacker& packer : kCodePackers)
    if (packer.type == view.type->name) return &packer;
  return nullptr;
}

// Floats of the tile's rows into F32 or BF16 blocks.
void PackFloats(const WeightView& view, int64_t tile_index, PackedKind kind, std::byte* tile) {
  const int64_t first = tile_index * kTileRows;
  const int64_t rows = std::min<int64_t>(kTileRows, view.rows - first);
  std::vector<float> floats(static_cast<size_t>(rows * view.cols));
  view.ReadRows(first, rows, floats.data(), view.cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) {
      const float value = floats[static_cast<size_t>(r * view.cols + c)];
      const auto at = static_cast<size_t>(c * kTileRows + r);
      if (kind == PackedKind::kF32) {
        std::memcpy(tile + at * 4, &value, 4);
      } else {
        const bfloat16 narrow = ToBFloat16(value);
        std::memcpy(tile + at * 2, &narrow, 2);
      }
    }
  }
}

}  // namespace

PackedKind ChoosePackedKind(const WeightView& view) {
  if (const CodePacker* packer = FindCodePacker(view)) return packer->kind;
  if (view.type->name == "BF16" && view.addend == 0) return PackedKind::kBF16;
  return PackedKind::kF32;
}

AlignedBytes::AlignedBytes(size_t size)
    : data_(static_cast<std::byte*>(std::aligned_alloc(64, (size + 63) / 64 * 64))), size_(size) {
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data_.get(), 0, size);
}
void AlignedBytes::Free::operator()(std::byte* p) const { std::free(p); }

PackedGroup Pack(std::span<const WeightView* const> views, ThreadPool& pool) {
  PackedGroup group;
  struct TileJob {
    size_t matrix;
    int64_t tile;
    size_t offset;
  };
  std::vector<TileJob> jobs;
  size_t size = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    const WeightView& view = *views[i];
    PackedMatrix matrix{.kind = ChoosePackedKind(view), .rows = view.rows, .cols = view.cols};
    const size_t tile_bytes = TileBytes(matrix.kind, matrix.Blocks());
    matrix.data = reinterpret_cast<const std::byte*>(size);  // an offset until the bytes exist
    for (int64_t t = 0; t < matrix.Tiles(); ++t, size += tile_bytes) jobs.push_back({i, t, size});
    size = (size + 63) / 64 * 64;
    group.matrices.push_back(matrix);
  }
  group.bytes = AlignedBytes(size + 1024);  // kernels prefetch ahead
  for (PackedMatrix& matrix : group.matrices)
    matrix.data = group.bytes.data() + reinterpret_cast<size_t>(matrix.data);
  pool.For(jobs.size(), [&](size_t j) {
    const TileJob& job = jobs[j];
    const WeightView& view = *views[job.matrix];
    const PackedMatrix& matrix = group.matrices[job.matrix];
    std::byte* tile = group.bytes.data() + job.offset;
    if (const CodePacker* packer = FindCodePacker(view)) {
      for (int r = 0; r < kTileRows && job.tile * kTileRows + r < view.rows; ++r)
        packer->pack(view.RowBytes(job.tile * kTileRows + r), r, matrix.Blocks(), tile);
    } else {
      PackFloats(view, job.tile, matrix.kind, tile);
    }
  });
  return group;
}

}  // namespace lockstep

#include "engine/pack.h"

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "engine/buffer.h"
#include "engine/pack_codes.h"

namespace lockstep {
namespace {

size_t Rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t MatrixBytes(const PackedMatrix& m) {
  return Rounded(static_cast<size_t>(m.Tiles()) * TileBytes(m.kind, m.Blocks()), 64);
}

bool Contiguous(const WeightView& view) { return view.col_stride == 1 && view.addend == 0; }

// 16 rows of plain numbers, column by column.
template <typename T>
void Interleave(const std::byte* const* rows, int64_t cols, std::byte* tile) {
  for (int64_t c = 0; c < cols; ++c, tile += kTileRows * sizeof(T)) {
    T line[kTileRows];
    for (int r = 0; r < kTileRows; ++r)
      std::memcpy(&line[r], rows[r] + c * static_cast<int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(tile, line, sizeof line);
  }
}

// Numbers of any type, by way of floats. kind: one that holds them exactly (ChoosePackedKind).
void InterleaveFloats(const WeightView& view, int64_t first, int64_t rows, PackedKind kind,
                      std::byte* tile) {
  std::vector<float> floats(static_cast<size_t>(kTileRows * view.cols));
  view.ReadRows(first, rows, floats.data(), view.cols);
  for (int64_t c = 0; c < view.cols; ++c) {
    for (int64_t r = 0; r < kTileRows; ++r) {
      const float value = floats[static_cast<size_t>(r * view.cols + c)];
      // bf16 lies in pairs of columns.
      const int64_t at =
          kind == PackedKind::kBF16 ? (c / 2 * kTileRows + r) * 2 + c % 2 : c * kTileRows + r;
      if (kind == PackedKind::kF32) {
        std::memcpy(tile + 4 * at, &value, 4);
      } else {
        const uint16_t bits =
            kind == PackedKind::kF16 ? ToFloat16(value).bits : ToBFloat16(value).bits;
        std::memcpy(tile + 2 * at, &bits, 2);
      }
    }
  }
}

// What a packed kind of floats keeps exactly, and whether the stored bytes are its numbers.
struct FloatPacker {
  std::string_view type;
  PackedKind kind;
  bool same_bytes;
};
constexpr FloatPacker kFloatPackers[] = {
    {"BF16", PackedKind::kBF16, true},    {"F16", PackedKind::kF16, true},
    {"F32", PackedKind::kF32, true},      {"F8_E4M3", PackedKind::kF16, false},
    {"F8_E5M2", PackedKind::kF16, false},
};
constexpr FloatPacker kAnyFloat = {"", PackedKind::kF32, false};

const FloatPacker& FloatPackerOf(const WeightView& view) {
  if (view.addend != 0) return kAnyFloat;
  for (const FloatPacker& packer : kFloatPackers)
    if (packer.type == view.type->name) return packer;
  return kAnyFloat;
}

// A stored row's bytes, for views with neighbouring columns.
size_t RowSize(const WeightView& view) {
  return static_cast<size_t>(view.cols / view.type->block_elements * view.type->block_bytes);
}

// zeros: as long as a stored row.
void PackTile(const WeightView& view, const PackedMatrix& matrix, int64_t index,
              const std::byte* zeros, std::byte* tile) {
  const int64_t first = index * kTileRows;
  const int64_t count = std::min<int64_t>(kTileRows, view.rows - first);
  const std::byte* rows[kTileRows];
  if (Contiguous(view))
    for (int r = 0; r < kTileRows; ++r) rows[r] = r < count ? view.RowBytes(first + r) : zeros;
  const CodePacker* codes = FindCodePacker(view.type->name);
  if (HoldsCodes(matrix.kind)) return codes->pack(rows, matrix.Blocks(), tile);
  const FloatPacker& floats = FloatPackerOf(view);
  const bool pairs = matrix.kind == PackedKind::kBF16;
  const size_t number = matrix.kind == PackedKind::kF32 ? 4 : 2;
  // What is beyond the last column (of its pair) is zero.
  const int64_t whole = pairs ? view.cols / 2 * 2 : view.cols;
  const int64_t columns = matrix.Blocks() * kBlockColumns;
  std::memset(tile + static_cast<size_t>(whole * kTileRows) * number, 0,
              static_cast<size_t>((columns - whole) * kTileRows) * number);
  if (!floats.same_bytes || !Contiguous(view) || whole != view.cols)
    InterleaveFloats(view, first, count, matrix.kind, tile);
  else if (matrix.kind == PackedKind::kF32)
    Interleave<uint32_t>(rows, view.cols, tile);
  else if (pairs)
    Interleave<uint32_t>(rows, view.cols / 2, tile);
  else
    Interleave<uint16_t>(rows, view.cols, tile);
}

}  // namespace

PackedKind ChoosePackedKind(const WeightView& view) {
  if (Contiguous(view))
    if (const CodePacker* packer = FindCodePacker(view.type->name)) return packer->kind;
  return FloatPackerOf(view).kind;
}

PackedGroup Packing::Add(std::span<const WeightView* const> views) {
  PackedGroup group{.matrices = {}, .views = {views.begin(), views.end()}, .offset = size_};
  for (const WeightView* view : views) {
    const PackedMatrix matrix{
        .kind = ChoosePackedKind(*view), .rows = view->rows, .cols = view->cols};
    entries_.push_back({view, matrix, size_});
    group.matrices.push_back(matrix);
    size_ += MatrixBytes(matrix);
  }
  group.size = size_ - group.offset;
  return group;
}

void Packing::Place(const PackedBytes& bytes, PackedGroup& group) {
  const std::byte* at = bytes.data.get() + group.offset;
  LS_CHECK(group.offset + group.size <= bytes.size, "{}+{} of {}", group.offset, group.size,
           bytes.size);
  for (PackedMatrix& matrix : group.matrices) {
    matrix.data = at;
    at += MatrixBytes(matrix);
  }
}

PackedBytes Packing::Pack(ThreadPool& pool) const {
  // Tiles in pieces of some hundred KiB: enough for every thread, not one call per tile.
  constexpr size_t kPiece = size_t{256} << 10;
  struct Job {
    const Entry* entry;
    int64_t first, last;
  };
  std::vector<Job> jobs;
  size_t longest_row = 0;
  for (const Entry& entry : entries_) {
    const size_t tile_bytes = TileBytes(entry.matrix.kind, entry.matrix.Blocks());
    const auto tiles = static_cast<int64_t>(std::max<size_t>(1, kPiece / tile_bytes));
    for (int64_t t = 0; t < entry.matrix.Tiles(); t += tiles)
      jobs.push_back({&entry, t, std::min(t + tiles, entry.matrix.Tiles())});
    if (Contiguous(*entry.view)) longest_row = std::max(longest_row, RowSize(*entry.view));
  }
  const std::vector<std::byte> zeros(longest_row);
  const std::shared_ptr<std::byte> bytes = AllocateZeroed(size());
  pool.For(jobs.size(), [&](size_t j) {
    const Entry& entry = *jobs[j].entry;
    const size_t tile_bytes = TileBytes(entry.matrix.kind, entry.matrix.Blocks());
    for (int64_t t = jobs[j].first; t < jobs[j].last; ++t)
      PackTile(*entry.view, entry.matrix, t, zeros.data(),
               bytes.get() + entry.offset + static_cast<size_t>(t) * tile_bytes);
  });
  return {bytes, size()};
}

}  // namespace lockstep

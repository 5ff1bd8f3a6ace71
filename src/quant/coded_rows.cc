#include "quant/coded_rows.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/code_bits.h"
#include "quant/error_feedback.h"

namespace lockstep {
namespace {

// Enough work per call for a thread, few enough rows that the floats stay in the cache.
constexpr int64_t kElementsPerTask = 1 << 15;

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t dim : shape) n *= dim;
  return n;
}

double SquaredNorm(std::span<const float> row) {
  double sum[4] = {};  // four sums, so that an addition need not wait for the one before
  size_t i = 0;
  for (; i + 4 <= row.size(); i += 4)
    for (size_t j = 0; j < 4; ++j) sum[j] += static_cast<double>(row[i + j]) * row[i + j];
  for (; i < row.size(); ++i) sum[0] += double{row[i]} * row[i];
  return sum[0] + sum[1] + sum[2] + sum[3];
}

// A search by importance may give up an element that hardly counts on the text at hand, and what
// makes errors good may move one far. None may be moved by more than this share of its block's
// largest, so that codes are recognised as the weights' (audit/weight_sums.h, EveryBlockFollows,
// with a little room).
float MostMoved(int bits) { return 3.99f / static_cast<float>(1 << std::max(bits, 2)); }

bool Follows(std::span<const float> x, std::span<const uint8_t> codes, const Grid& grid, int bits) {
  const float steps = MostMoved(bits);
  float largest = 0, worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(x[i]));
    worst = std::max(worst, std::abs(x[i] - grid.Value(codes[i])));
  }
  return worst <= steps * largest;
}

// The lowest row that failed, whichever thread saw it.
void Lower(std::atomic<int64_t>& lowest, int64_t row) {
  int64_t seen = lowest.load();
  while (row < seen && !lowest.compare_exchange_weak(seen, row)) {
  }
}

}  // namespace

Status CheckRecipe(const CodeRecipe& recipe, int64_t rows, int64_t cols) {
  if (recipe.scale_type != DType::kF32 && recipe.scale_type != DType::kF16 &&
      recipe.scale_type != DType::kBF16)
    return UsageError("scales of type {} are not stored; use F32, F16 or BF16",
                      DTypeName(recipe.scale_type));
  if (rows < 1 || cols < 1)
    return UsageError("a matrix [{}, {}] has nothing to quantize", rows, cols);
  if (!recipe.importance.empty() && static_cast<int64_t>(recipe.importance.size()) != cols)
    return UsageError("the importance has {} numbers for {} columns; give one for each",
                      recipe.importance.size(), cols);
  return {};
}

Status CheckBlock(const CodeRecipe& recipe) {
  const int64_t block = recipe.block;
  if (block < 16 || (block & (block - 1)) != 0)
    return UnsupportedError("blocks of {} are not stored; use a power of two from 16 on", block);
  return {};
}

Result<CodingError> QuantizeRows(const RowSource& source, const CodeRecipe& recipe,
                                 ThreadPool* pool,
                                 const std::function<void(const CodedRow&)>& sink) {
  LS_RETURN_IF_ERROR(CheckRecipe(recipe, source.rows, source.cols));
  const GridSpec spec{.bits = recipe.bits,
                      .zeros = recipe.zeros,
                      .search = recipe.search,
                      .scale_type = recipe.scale_type};
  const auto cols = static_cast<size_t>(source.cols);
  const auto block = static_cast<size_t>(BlockOf(recipe, source.cols));
  const auto blocks = static_cast<size_t>(BlocksOf(recipe, source.cols));
  const auto least_rows = static_cast<int64_t>(source.feedback == nullptr ? 1 : kFeedbackRows);
  const int64_t step = std::max(least_rows, kElementsPerTask / source.cols);
  const auto tasks = static_cast<size_t>((source.rows + step - 1) / step);
  std::vector<CodingError> errors(tasks);
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> not_finite = kNone, too_large = kNone;
  const auto code_row = [&](std::span<const float> row, std::span<uint8_t> codes,
                            std::span<Grid> grids) {
    for (size_t b = 0; b < blocks; ++b) {
      const size_t at = b * block, n = std::min(block, cols - at);
      const auto importance =
          recipe.importance.empty() ? recipe.importance : recipe.importance.subspan(at, n);
      const auto out = codes.subspan(at, n);
      grids[b] = FitGrid(row.subspan(at, n), spec, out, importance);
      if (!importance.empty() && !Follows(row.subspan(at, n), out, grids[b], recipe.bits))
        grids[b] = FitGrid(row.subspan(at, n), spec, out);
    }
  };
  const auto task = [&](size_t t) {
    const int64_t begin = static_cast<int64_t>(t) * step;
    const int64_t end = std::min(source.rows, begin + step);
    const auto together = static_cast<int64_t>(kFeedbackRows);
    std::vector<float> x(kFeedbackRows * cols);
    std::vector<uint8_t> codes(kFeedbackRows * cols);
    std::vector<Grid> grids(kFeedbackRows * blocks);
    for (int64_t first = begin; first < end; first += together) {
      const int64_t count = std::min(together, end - first);
      source.read(first, count, x.data());
      const auto n = static_cast<size_t>(count);
      for (size_t r = 0; r < n; ++r) {
        const double norm = SquaredNorm(std::span(x).subspan(r * cols, cols));
        if (!std::isfinite(norm)) return Lower(not_finite, first + static_cast<int64_t>(r));
        errors[t].squared_norm += norm;
      }
      if (source.feedback != nullptr)
        CodeWithFeedback(x, n, cols, block, spec, *source.feedback, MostMoved(recipe.bits), codes,
                         grids);
      for (size_t r = 0; r < n; ++r) {
        const auto row = std::span<const float>(x).subspan(r * cols, cols);
        const auto own = std::span(codes).subspan(r * cols, cols);
        const auto scales = std::span(grids).subspan(r * blocks, blocks);
        if (source.feedback == nullptr) code_row(row, own, scales);
        for (size_t b = 0; b < blocks; ++b) {
          if (!std::isfinite(scales[b].scale))
            return Lower(too_large, first + static_cast<int64_t>(r));
          const size_t at = b * block, width = std::min(block, cols - at);
          errors[t].squared_error +=
              GridError(row.subspan(at, width), own.subspan(at, width), scales[b]);
        }
        sink({.row = first + static_cast<int64_t>(r), .codes = own, .grids = scales});
      }
    }
  };
  if (pool != nullptr)
    pool->For(tasks, task);
  else
    for (size_t t = 0; t < tasks; ++t) task(t);
  if (not_finite != kNone)
    return InputError(
        "row {} holds NaN or infinite weights, and codes stand for finite ones; mend "
        "the checkpoint",
        not_finite.load());
  if (too_large != kNone)
    return InputError("row {} needs a scale that {} cannot hold; store scales as F32",
                      too_large.load(), DTypeName(recipe.scale_type));
  CodingError sum;
  for (const CodingError& error : errors) {
    sum.squared_error += error.squared_error;
    sum.squared_norm += error.squared_norm;
  }
  return sum;
}

PackedPart ScalesPart(DType type, std::vector<int64_t> shape) {
  PackedPart part{.type = type, .shape = std::move(shape), .bytes = {}};
  part.bytes.resize(static_cast<size_t>(Product(part.shape)) * DTypeSize(type));
  return part;
}

void StoreScale(PackedPart& scales, int64_t i, float scale) {
  std::byte* to = scales.bytes.data() + static_cast<size_t>(i) * DTypeSize(scales.type);
  if (scales.type == DType::kF32) {
    std::memcpy(to, &scale, sizeof scale);
    return;
  }
  const uint16_t half = scales.type == DType::kF16 ? ToFloat16(scale).bits : ToBFloat16(scale).bits;
  std::memcpy(to, &half, sizeof half);
}

float LoadScale(const PackedPart& scales, int64_t i) {
  float scale;
  ConvertToFloat(scales.type, scales.bytes.data() + static_cast<size_t>(i) * DTypeSize(scales.type),
                 1, &scale);
  return scale;
}

PackedPart BytesPart(std::vector<int64_t> shape) {
  PackedPart part{.type = DType::kU8, .shape = std::move(shape), .bytes = {}};
  part.bytes.resize(static_cast<size_t>(Product(part.shape)));
  return part;
}

uint8_t* BytesIn(PackedPart& part) { return reinterpret_cast<uint8_t*>(part.bytes.data()); }
const uint8_t* BytesIn(const PackedPart& part) {
  return reinterpret_cast<const uint8_t*>(part.bytes.data());
}

Result<PackedWeight> PackByRows(const RowSource& source, const CodeRecipe& recipe,
                                std::vector<int64_t> codes_shape, int64_t stored,
                                ThreadPool* pool) {
  const int64_t blocks = BlocksOf(recipe, source.cols);
  const int64_t row_bytes = PackedBytes(stored, recipe.bits);
  const int64_t zero_bytes = PackedBytes(blocks, recipe.bits);
  PackedWeight weight{.codes = BytesPart(std::move(codes_shape)),
                      .scales = ScalesPart(recipe.scale_type, {source.rows, blocks}),
                      .zero_points = {}};
  if (recipe.zeros == ZeroPoints::kCodes) weight.zero_points = BytesPart({source.rows, zero_bytes});
  LS_TRY(const auto error, QuantizeRows(source, recipe, pool, [&](const CodedRow& row) {
           std::vector<uint8_t> whole(static_cast<size_t>(stored),
                                      static_cast<uint8_t>(row.grids.back().zero));
           std::copy(row.codes.begin(), row.codes.end(), whole.begin());
           PackCodes(whole, recipe.bits, BytesIn(weight.codes) + row.row * row_bytes);
           std::vector<uint8_t> zeros;
           for (int64_t b = 0; b < blocks; ++b) {
             const Grid& grid = row.grids[static_cast<size_t>(b)];
             StoreScale(weight.scales, row.row * blocks + b, grid.scale);
             zeros.push_back(static_cast<uint8_t>(grid.zero));
           }
           if (weight.zero_points)
             PackCodes(zeros, recipe.bits, BytesIn(*weight.zero_points) + row.row * zero_bytes);
         }));
  weight.squared_error = error.squared_error;
  weight.squared_norm = error.squared_norm;
  return weight;
}

}  // namespace lockstep

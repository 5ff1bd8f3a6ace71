#include "cli/weight_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 16;
constexpr size_t kPiecesPerRound = 256;

bool HoldsNumbers(const TensorType& type) {
  return !type.plain() || type.name.starts_with('F') || type.name.starts_with("BF");
}

WeightStatistics ScanPiece(const TensorInfo& tensor, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const int64_t block = first / tensor.type->block_elements;
  tensor.type->dequantize(tensor.data.data() + block * tensor.type->block_bytes, count,
                          values.data());
  WeightStatistics out;
  out.lowest = std::numeric_limits<float>::infinity();
  out.highest = -out.lowest;
  for (const float x : values) {
    if (std::isnan(x)) {
      ++out.nan;
    } else if (std::isinf(x)) {
      ++out.infinite;
    } else {
      ++out.finite;
      out.lowest = std::min(out.lowest, x);
      out.highest = std::max(out.highest, x);
      out.sum_of_squares += static_cast<double>(x) * x;
    }
  }
  return out;
}

}  // namespace

double WeightStatistics::rms() const {
  return finite == 0 ? 0 : std::sqrt(sum_of_squares / static_cast<double>(finite));
}

std::vector<WeightStatistics> ScanWeights(std::span<const TensorInfo> tensors, ThreadPool& pool,
                                          const std::function<bool(double)>& go_on) {
  struct Piece {
    size_t tensor;
    int64_t first, count;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!HoldsNumbers(*tensors[i].type)) continue;
    const int64_t block = tensors[i].type->block_elements;
    const int64_t step = kPieceElements / block * block;
    for (int64_t first = 0; first < tensors[i].elements(); first += step)
      pieces.push_back({i, first, std::min(step, tensors[i].elements() - first)});
  }
  std::vector<WeightStatistics> out(tensors.size());
  std::vector<WeightStatistics> round(kPiecesPerRound);
  for (size_t begin = 0; begin < pieces.size(); begin += kPiecesPerRound) {
    if (!go_on(static_cast<double>(begin) / static_cast<double>(pieces.size()))) break;
    const size_t count = std::min(kPiecesPerRound, pieces.size() - begin);
    pool.For(count, [&](size_t i) {
      const Piece& piece = pieces[begin + i];
      round[i] = ScanPiece(tensors[piece.tensor], piece.first, piece.count);
    });
    for (size_t i = 0; i < count; ++i) {
      WeightStatistics& sum = out[pieces[begin + i].tensor];
      const WeightStatistics& piece = round[i];
      if (piece.finite > 0) {
        sum.lowest = sum.finite > 0 ? std::min(sum.lowest, piece.lowest) : piece.lowest;
        sum.highest = sum.finite > 0 ? std::max(sum.highest, piece.highest) : piece.highest;
      }
      sum.nan += piece.nan;
      sum.infinite += piece.infinite;
      sum.finite += piece.finite;
      sum.sum_of_squares += piece.sum_of_squares;
    }
  }
  return out;
}

}  // namespace lockstep

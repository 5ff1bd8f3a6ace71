#include "audit/zero_points.h"

#include <algorithm>
#include <cmath>

#include "audit/storage.h"

namespace lockstep {
namespace {

// With fewer codes a block may lie on one side of its numbers by chance.
constexpr size_t kLeastCodes = 8;

// Of distances (codes less numbers, in steps), the share within half a step of `from`.
double ShareAt(const std::vector<double>& distances, double from, double half) {
  const auto near =
      std::ranges::count_if(distances, [&](double d) { return std::abs(d - from) <= half; });
  return static_cast<double>(near) / static_cast<double>(distances.size());
}

// Codes are made by rounding to the nearest, so that each lies within half a step of its number;
// beside a zero point that is k off, k and half a step. Codes at the end of their range were cut
// off, perhaps, and a zero point may have been as well: most must lie there, and few where they
// should.
int StepsOff(std::vector<double> distances, double half) {
  // Of sound codes, which nearly all are, no more is asked.
  if (distances.size() < kLeastCodes || ShareAt(distances, 0, half) > 0.4) return 0;
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::ranges::nth_element(distances, middle);
  const double k = std::round(*middle);
  if (k == 0 || !(std::abs(k) < 256)) return 0;
  return ShareAt(distances, k, half) >= 0.8 ? static_cast<int>(k) : 0;
}

// Half a step of the type, relative to a number of it: of fp32 what its products add to that.
double PrecisionOf(OnnxType type) { return std::max(StepOf(1, RoundingOf(type)) / 2, 0x1p-20); }

}  // namespace

std::optional<ZeroShifts> ZeroShiftsOf(const Graph& graph, const StoredMatrix& matrix,
                                       const Rows& ref) {
  if (!matrix.codes || ref.rows != matrix.rows || ref.cols != matrix.cols) return std::nullopt;
  const BlockCodes& codes = *matrix.codes;
  const double precision =
      PrecisionOf(graph.model().tensors()[static_cast<size_t>(codes.scales)].type);
  StoredMatrix units_alone = matrix;
  units_alone.codes->unit_scales = true;
  ZeroShifts out;
  std::vector<float> units(static_cast<size_t>(matrix.cols));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const std::vector<float> want = ref.Row(r);
    units_alone.ReadRow(graph, r, units.data());
    const std::vector<float> scales = matrix.ScalesOf(graph, r);
    for (int64_t b = 0; b < codes.blocks; ++b) {
      const auto begin = static_cast<size_t>(b * codes.block);
      const auto end = static_cast<size_t>(
          b + 1 == codes.blocks ? matrix.cols : std::min(matrix.cols, (b + 1) * codes.block));
      const double scale = scales[static_cast<size_t>(b)];
      std::vector<double> distances;
      double largest = 0;
      for (size_t c = begin; c < end && scale != 0; ++c) {
        distances.push_back(double{units[c]} - double{want[c]} / scale);
        largest = std::max(largest, std::abs(double{units[c]}));
      }
      const int steps = StepsOff(std::move(distances), 0.5 + 1e-3 + largest * precision);
      out.steps.push_back(steps);
      if (steps != 0) {
        if (out.off++ == 0) out.same = steps;
        if (out.same && *out.same != steps) out.same.reset();
      }
    }
  }
  if (out.off == 0) return std::nullopt;
  // The numbers under the right zero points.
  const Rows corrected{matrix.rows, matrix.cols, [&](int64_t row, float* to) {
                         units_alone.ReadRow(graph, row, to);
                         const std::vector<float> scales = matrix.ScalesOf(graph, row);
                         for (int64_t c = 0; c < matrix.cols; ++c) {
                           const int64_t b = std::min(c / codes.block, codes.blocks - 1);
                           const int steps = out.steps[static_cast<size_t>(row * codes.blocks + b)];
                           to[c] =
                               (to[c] - static_cast<float>(steps)) * scales[static_cast<size_t>(b)];
                         }
                       }};
  if (!AreSoundCodes(SumsOf(ref, corrected), codes.bits) ||
      !EveryBlockFollows(ref, corrected, codes.bits, codes.block))
    return std::nullopt;
  return out;
}

}  // namespace lockstep

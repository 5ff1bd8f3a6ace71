#include "audit/rope_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "audit/storage.h"
#include "reference/ops.h"
#include "reference/rope.h"

namespace lockstep {
namespace {

constexpr double kSameFrequency = 3e-6;  // relative, of numbers that went through fp32 cos and sin
// fp32 angles of far positions are off by their last bits, and writers round them each their way.
constexpr double kAnglePerRow = 5e-7;
constexpr int64_t kRowsCompared = 4096;
constexpr int64_t kMostShift = 16;
constexpr int64_t kMaxRows = int64_t{1} << 24;

// The angle of row r says the frequency r times as exactly as that of row 1, but only up to whole
// turns. So the row is doubled: what the one before left open is far less than a turn.
void Refine(StoredRopeTable& table) {
  const auto half = static_cast<size_t>(table.half);
  int64_t row = 1;
  for (; 2 * row < std::min(table.rows, kRowsCompared); row *= 2) {
    const auto at = static_cast<size_t>(2 * row) * half;
    for (size_t i = 0; i < half; ++i) {
      const double told = std::atan2(double{table.sin[at + i]}, double{table.cos[at + i]});
      const double guess = static_cast<double>(2 * row) * table.inverse[i];
      table.inverse[i] = (guess + std::remainder(told - guess, 2 * std::numbers::pi)) /
                         static_cast<double>(2 * row);
    }
  }
  // A step of the type in both coordinates.
  table.uncertainty = std::numbers::sqrt2 * StepOf(0.5, table.storage) / static_cast<double>(row);
}

}  // namespace

std::optional<StoredRopeTable> ReadTable(const Graph& graph, const FoundRope& rope, int64_t first) {
  if (!rope.cos || !rope.sin || rope.cos->shape.size() != 2 || rope.cos->shape != rope.sin->shape)
    return std::nullopt;
  // The first rows end where those of a longer context begin.
  const int64_t end =
      first < rope.long_row ? std::min(rope.long_row, rope.cos->shape[0]) : rope.cos->shape[0];
  StoredRopeTable table{.rows = end - first, .half = rope.cos->shape[1], .cos = {}, .sin = {}};
  if (table.rows < 2 || table.rows > kMaxRows || table.half < 1 ||
      rope.cos->elements() > kMaxRows * 64)
    return std::nullopt;
  const auto part = [&](const ConstantView& view) {
    ConstantView rows = view;
    rows.offset += first * rows.strides[0];
    rows.shape[0] = table.rows;
    return graph.Read(rows);
  };
  table.cos = part(*rope.cos);
  table.sin = part(*rope.sin);
  table.storage = StorageOf(graph, *rope.cos);
  const auto half = static_cast<size_t>(table.half);
  table.amplitude = std::hypot(double{table.cos[0]}, double{table.sin[0]});
  for (size_t i = 0; i < half; ++i)
    table.inverse.push_back(std::atan2(double{table.sin[half + i]}, double{table.cos[half + i]}));
  if (table.storage != Rounding::kNone) Refine(table);
  return table;
}

bool SameFrequencies(const StoredRopeTable& table, const RopeSpec& rope, int64_t length) {
  const std::vector<float> expected = InverseFrequencies(rope, length);
  if (expected.size() != table.inverse.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(table.inverse[i] - double{expected[i]}) <=
          kSameFrequency * double{expected[i]} + table.uncertainty))
      return false;
  return true;
}

bool SameAmplitude(const StoredRopeTable& table, const RopeSpec& rope) {
  return std::abs(table.amplitude - Rounded(RopeAttentionFactor(rope), table.storage)) <
         1e-6 * table.amplitude;
}

double EarlyError(const StoredRopeTable& table, const RopeSpec& rope, int64_t length) {
  const auto columns = static_cast<size_t>(table.half);
  double worst = 0;
  // A wrong row of a long table may be any: all are compared, some at a time.
  for (int64_t first = 0; first < table.rows && worst < kSameEntry; first += kRowsCompared) {
    const int64_t rows = std::min(table.rows - first, kRowsCompared);
    const RopeTable expected(rope, first, rows, length);
    const size_t begin = static_cast<size_t>(first) * columns;
    for (size_t i = 0; i < expected.cos.size(); ++i) {
      const size_t at = begin + i, row = at / columns;
      for (const auto& [want, got] :
           {std::pair{expected.cos[i], table.cos[at]}, {expected.sin[i], table.sin[at]}}) {
        const double error = std::abs(double{want} - double{got});
        if (!(error >= 0)) return INFINITY;  // no number
        worst = std::max(worst, error - kAnglePerRow * static_cast<double>(row) -
                                    StepOf(double{want}, table.storage));
      }
    }
  }
  return worst;
}

std::optional<std::string> RoundedEntries(const StoredRopeTable& table, const RopeSpec& rope,
                                          int64_t length) {
  const int64_t rows = std::min(table.rows, kRowsCompared);
  const RopeTable expected(rope, 0, rows, length);
  const auto columns = static_cast<size_t>(table.half);
  if (columns == 0 || expected.cos.size() != static_cast<size_t>(rows) * columns)
    return std::nullopt;
  // Numbers of the type, each within half a step of what it should be.
  const auto fits = [&](Rounding type) {
    for (size_t i = 0; i < expected.cos.size(); ++i) {
      const size_t row = i / columns;
      const double excused = kSameEntry + kAnglePerRow * static_cast<double>(row);
      for (const auto& [want, got] :
           {std::pair{expected.cos[i], table.cos[i]}, {expected.sin[i], table.sin[i]}})
        if (Rounded(got, type) != double{got} ||
            !(std::abs(double{want} - double{got}) <= StepOf(double{want}, type) / 2 + excused))
          return false;
    }
    return true;
  };
  for (const Rounding type : {Rounding::kBF16, Rounding::kFP16})
    if (type != table.storage && fits(type))
      return fmt::format("the entries of cosines and sines were rounded to {}", StorageName(type));
  return std::nullopt;
}

std::optional<std::string> RoundedAngles(const StoredRopeTable& table, const RopeSpec& rope,
                                         int64_t length) {
  const std::vector<float> inverse = InverseFrequencies(rope, length);
  if (inverse.size() != static_cast<size_t>(table.half)) return std::nullopt;
  const double factor = RopeAttentionFactor(rope);
  const int64_t rows = std::min(table.rows, kRowsCompared);
  const auto fits = [&](Rounding type, bool frequencies, bool positions, bool angles) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = static_cast<double>(r);
      for (size_t i = 0; i < inverse.size(); ++i) {
        const double f = frequencies ? Rounded(inverse[i], type) : double{inverse[i]};
        double angle = double{static_cast<float>((positions ? Rounded(row, type) : row) * f)};
        if (angles) angle = Rounded(angle, type);
        const size_t at = static_cast<size_t>(r) * inverse.size() + i;
        for (const auto& [want, got] : {std::pair{factor * std::cos(angle), table.cos[at]},
                                        {factor * std::sin(angle), table.sin[at]}}) {
          const double step = std::max(StepOf(want, type), StepOf(want, table.storage));
          if (!(std::abs(want - double{got}) <= step + kSameEntry + kAnglePerRow * row))
            return false;
        }
      }
    }
    return true;
  };
  for (const Rounding type : {Rounding::kBF16, Rounding::kFP16}) {
    if (fits(type, true, false, false))
      return fmt::format("the frequencies were rounded to {}", StorageName(type));
    // As numbers of the type multiply; with an exact frequency; with exact positions.
    if (fits(type, true, true, true) || fits(type, false, false, true) ||
        fits(type, true, false, true) || fits(type, false, true, true))
      return fmt::format("the angles were rounded to {} before cos and sin were taken",
                         StorageName(type));
  }
  return std::nullopt;
}

std::optional<int64_t> ShiftOf(const StoredRopeTable& table, const RopeSpec& rope, int64_t length) {
  const int64_t rows = std::min(table.rows, kRowsCompared);
  if (rows < 2 * kMostShift) return std::nullopt;
  const RopeTable expected(rope, 0, rows, length);
  const auto columns = static_cast<size_t>(table.half);
  if (expected.cos.size() != static_cast<size_t>(rows) * columns) return std::nullopt;
  const auto stands = [&](int64_t shift) {
    for (int64_t r = std::max<int64_t>(0, -shift); r < std::min(rows, rows - shift); ++r) {
      const double excused = kSameEntry + kAnglePerRow * static_cast<double>(r + std::abs(shift));
      for (size_t c = 0; c < columns; ++c) {
        const size_t at = static_cast<size_t>(r) * columns + c;
        const size_t want = static_cast<size_t>(r + shift) * columns + c;
        for (const auto& [right, got] :
             {std::pair{expected.cos[want], table.cos[at]}, {expected.sin[want], table.sin[at]}})
          if (!(std::abs(double{right} - double{got}) <=
                excused + StepOf(double{right}, table.storage)))
            return false;
      }
    }
    return true;
  };
  for (int64_t shift = 1; shift <= kMostShift; ++shift)
    for (const int64_t signed_shift : {shift, -shift})
      if (stands(signed_shift)) return signed_shift;
  return std::nullopt;
}

}  // namespace lockstep

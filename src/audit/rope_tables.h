// RopeTables: what the tables of cosines and sines in a graph say. Row 0 is the factor on cos and
// sin, row 1 the frequencies; of tables in 16 bits, whose first rows say little, later rows as
// well. Inside this folder only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audit/decoder.h"
#include "audit/graph.h"

namespace lockstep {

inline constexpr double kSameEntry = 1e-5;  // of early rows: a lower precision would miss it

struct StoredRopeTable {
  int64_t rows = 0, half = 0;
  std::vector<float> cos, sin;  // [rows, half]
  Rounding storage = Rounding::kNone;
  double amplitude = 1;
  std::vector<double> inverse;  // frequencies,
  double uncertainty = 0;       // and how far off each may be by the type that the table is kept in
};

// The rows from `first` on, up to those of a longer context. Absent where the graph stores none.
std::optional<StoredRopeTable> ReadTable(const Graph& graph, const FoundRope& rope, int64_t first);

bool SameFrequencies(const StoredRopeTable& table, const RopeSpec& rope, int64_t length);
bool SameAmplitude(const StoredRopeTable& table, const RopeSpec& rope);

// The largest difference of an entry beyond what its row excuses, and one step of the type that the
// table is kept in; of all rows, or, once one is kSameEntry or more, of those up to there.
double EarlyError(const StoredRopeTable& table, const RopeSpec& rope, int64_t length);

// The spec's table, but its entries were rounded to 16 bits, other than those that it is kept in.
// The whole of what is wrong with it, or nothing.
std::optional<std::string> RoundedEntries(const StoredRopeTable& table, const RopeSpec& rope,
                                          int64_t length);

// The spec's table, but frequencies or angles were rounded to 16 bits before cos and sin were
// taken: far positions turn by a wrong angle. A sentence's beginning, or nothing.
std::optional<std::string> RoundedAngles(const StoredRopeTable& table, const RopeSpec& rope,
                                         int64_t length);

// By how many rows the tables stand beside their positions: row r holds those of position r +
// shift. Rows whose position is none of the table's may hold anything (those that were rolled
// around). Absent: by none, or they are not the expected tables at all.
std::optional<int64_t> ShiftOf(const StoredRopeTable& table, const RopeSpec& rope, int64_t length);

}  // namespace lockstep

#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

size_t Levenshtein(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(std::string_view name, std::span<const std::string> known) {
  name = name.substr(0, 128);  // names come from files: bound the work
  std::string best;
  size_t best_distance = name.size() / 2 + 1;
  for (const std::string& candidate : known) {
    const size_t distance = Levenshtein(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep

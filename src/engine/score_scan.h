// ScanScores: the one pass over a vocabulary's scores that every rule needs, in lanes that the
// compiler takes at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace lockstep {

struct ScoreScan {
  float highest = -std::numeric_limits<float>::infinity();  // NaN is none
  bool fit = true;                                          // no NaN and no +infinity

  // A token can be chosen.
  bool Any() const { return fit && highest > -std::numeric_limits<float>::infinity(); }
};

inline ScoreScan ScanScores(std::span<const float> scores) {
  constexpr size_t kLanes = 16;
  constexpr float kMost = std::numeric_limits<float>::max();
  ScoreScan scan;
  float highest[kLanes];
  std::fill(highest, highest + kLanes, scan.highest);
  int32_t unfit[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= scores.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = scores[i + lane];
      highest[lane] = x > highest[lane] ? x : highest[lane];
      unfit[lane] |= !(x <= kMost);
    }
  for (; i < scores.size(); ++i) {
    highest[0] = scores[i] > highest[0] ? scores[i] : highest[0];
    unfit[0] |= !(scores[i] <= kMost);
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    scan.highest = std::max(scan.highest, highest[lane]);
    scan.fit = scan.fit && unfit[lane] == 0;
  }
  return scan;
}

}  // namespace lockstep

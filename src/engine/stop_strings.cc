#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace lockstep {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
  std::stable_sort(stops_.begin(), stops_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string StopStrings::Feed(std::string_view piece) {
  if (stopped_by_) return {};
  held_ += piece;
  // The first place where a stop string begins, whole or cut off by the end of the text. A whole
  // one ends the text only when no earlier beginning could still become one.
  for (size_t at = 0; at < held_.size(); ++at) {
    const std::string_view rest = std::string_view(held_).substr(at);
    bool may_begin = false;
    for (const std::string& stop : stops_) {
      if (rest.starts_with(stop)) {
        if (may_begin) break;  // a longer stop may still come: wait for it
        stopped_by_ = stop;
        std::string safe = held_.substr(0, at);
        held_.clear();
        return safe;
      }
      may_begin |= stop.starts_with(rest);
    }
    if (!may_begin) continue;
    std::string safe = held_.substr(0, at);
    held_.erase(0, at);
    return safe;
  }
  return std::exchange(held_, {});
}

std::string StopStrings::Finish() {
  // A shorter stop string may stand in what waited for a longer one.
  for (size_t at = 0; at < held_.size() && !stopped_by_; ++at)
    for (const std::string& stop : stops_) {
      if (!std::string_view(held_).substr(at).starts_with(stop)) continue;
      stopped_by_ = stop;
      held_.resize(at);
      break;
    }
  return std::exchange(held_, {});
}

}  // namespace lockstep

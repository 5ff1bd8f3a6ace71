// StopStrings: watches text as it is generated and ends it before the first stop string.
// Pieces of text go in; text that can no longer be part of a stop string comes out. No byte of a
// stop string is ever let out, however the pieces cut it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class StopStrings {
 public:
  // Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  // Returns what is now safe to show. After a stop it returns nothing more.
  std::string Feed(std::string_view piece);
  // The text has ended without a stop: what was held back.
  std::string Finish();
  // The stop string that ended the text: the one that begins first, the longest among those.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }

 private:
  std::vector<std::string> stops_;  // longest first
  std::string held_;
  std::optional<std::string> stopped_by_;
};

}  // namespace lockstep

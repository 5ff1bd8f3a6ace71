// LineReader: lines from stdin, one at a time, that Ctrl-C can interrupt.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

class LineReader {
 public:
  enum class End { kLine, kEndOfInput, kInterrupted };
  // Without its newline. A line that ends in a backslash goes on with the next one.
  End Next(std::string& line);

 private:
  End NextPhysical(std::string& line);
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace lockstep

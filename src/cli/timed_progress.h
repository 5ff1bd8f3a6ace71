// A progress line that says how long it may still take: "writing weights, 12 s left 34%".
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "cli/terminal.h"

namespace lockstep {

class TimedProgress {
 public:
  bool Show(std::string_view doing, int64_t done, int64_t total) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::string text(doing);
    if (done > 0 && done < total && seconds > 1)
      text += fmt::format(", {:.0f} s left",
                          seconds * static_cast<double>(total - done) / static_cast<double>(done));
    line_.Show(text, done, total);
    return !WasInterrupted();
  }
  void Clear() { line_.Clear(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ProgressLine line_;
};

}  // namespace lockstep

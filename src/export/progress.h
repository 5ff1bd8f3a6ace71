// How far an export is, for whoever waits; and how it is stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/error.h"

namespace lockstep {

// Called with what is being done and how much of how many bytes; false: stop, and clean up.
using ExportProgress =
    std::function<bool(std::string_view doing, int64_t done_bytes, int64_t total_bytes)>;

inline tl::unexpected<Error> ExportInterrupted() {
  return Fail(ErrorCode::kInterrupted, "the export was interrupted; nothing was left behind");
}

}  // namespace lockstep

#include "base/memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <limits>

namespace lockstep {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The first number that `format` finds in a line of the file.
uint64_t NumberIn(const char* path, const char* format) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return kUnknown;
  char line[256];
  uint64_t number = kUnknown, found = 0;
  while (number == kUnknown && std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, format, &found) == 1) number = found;
  std::fclose(file);
  return number;
}

// "max" is no number: no limit.
uint64_t LeftInGroup() {
  const uint64_t most = NumberIn("/sys/fs/cgroup/memory.max", "%" SCNu64);
  const uint64_t used = NumberIn("/sys/fs/cgroup/memory.current", "%" SCNu64);
  if (most == kUnknown || used == kUnknown) return kUnknown;
  // The page cache counts as used, and gives way.
  const uint64_t files = NumberIn("/sys/fs/cgroup/memory.stat", "inactive_file %" SCNu64);
  const uint64_t held = used - std::min(used, files == kUnknown ? 0 : files);
  return most - std::min(most, held);
}

}  // namespace

uint64_t AvailableMemory() {
  const uint64_t kilobytes = NumberIn("/proc/meminfo", "MemAvailable: %" SCNu64);
  return std::min(kilobytes > kUnknown / 1024 ? kUnknown : kilobytes * 1024, LeftInGroup());
}

}  // namespace lockstep

#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void CheckFailed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold%s%s. Please report this.\n", file,
               line, condition, values.empty() ? "" : ": ", values.c_str());
  std::abort();
}

}  // namespace lockstep

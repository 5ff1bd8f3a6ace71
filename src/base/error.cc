#include "base/error.h"

#include <cstdio>
#include <cstdlib>

#include "base/quoted.h"

namespace lockstep {

Error Error::In(std::string_view place) && {
  return {code, OneLine(fmt::format("{}: {}", place, message), kMaxMessage)};
}

tl::unexpected<Error> MakeError(ErrorCode code, std::string_view text) {
  return tl::unexpected(Error{code, OneLine(text, kMaxMessage)});
}

void CheckFailed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold%s%s. Please report this.\n", file,
               line, condition, values.empty() ? "" : ": ", values.c_str());
  std::abort();
}

}  // namespace lockstep

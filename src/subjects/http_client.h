// One HTTP request and its answer, whole, bounded in time and size; nothing is followed elsewhere.
// What HttpSubject asks with. libcurl does the work.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"

namespace lockstep {

struct HttpRequest {
  std::string url;
  std::optional<std::string> json;  // a body to POST; absent: GET
  std::string key;                  // of an API; empty: none is sent
  std::chrono::milliseconds timeout{600'000};
  size_t largest_answer = size_t{64} << 20;
  std::function<bool()> go_on;  // false: the user stopped it
};

struct HttpAnswer {
  long status = 0;
  std::string body;
};

// Any status is an answer; an error is that there was none: no connection, no end in time, more
// bytes than allowed.
Result<HttpAnswer> Ask(const HttpRequest& request);

}  // namespace lockstep

// JSON of files that people open: objects indented by two, a list of plain values on one line.
#pragma once

#include <string>

#include "base/json.h"

namespace lockstep {

// Ends with a newline; bytes that are no UTF-8 are replaced.
std::string ReadableJson(const Json& json);

}  // namespace lockstep

#include "base/readable_json.h"

#include <algorithm>

namespace lockstep {
namespace {

void WriteReadable(const Json& json, size_t indent, std::string& out) {
  const bool plain = !json.is_structured() || json.empty() ||
                     (json.is_array() && std::none_of(json.begin(), json.end(), [](const Json& v) {
                        return v.is_structured();
                      }));
  if (plain) {
    out += json.dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  const std::string line = "\n" + std::string(indent, ' ');
  out += json.is_array() ? '[' : '{';
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    out += first ? "" : ",";
    out += line + "  ";
    if (json.is_object())
      out += Json(key).dump(-1, ' ', false, Json::error_handler_t::replace) + ": ";
    WriteReadable(value, indent + 2, out);
    first = false;
  }
  out += line;
  out += json.is_array() ? ']' : '}';
}

}  // namespace

std::string ReadableJson(const Json& json) {
  std::string out;
  WriteReadable(json, 0, out);
  return out + "\n";
}

}  // namespace lockstep

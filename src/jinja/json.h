// JSON in and out of templates: the context comes in as Json, `tojson` writes as Python's
// json.dumps.
#pragma once

#include <string>

#include "base/json.h"
#include "jinja/value.h"

namespace lockstep::jinja {

Expected<Value> FromJson(const Json& json, Budget* budget);

struct DumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;  // one item a line
  std::string indent;     // what each level adds
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Expected<std::string> DumpJson(const Value& value, const DumpOptions& options, Budget* budget);

}  // namespace lockstep::jinja

// JSON of configs and of our own output. Large files (tokenizer.json) are read with simdjson
// instead.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace lockstep {

using Json =
    nlohmann::ordered_json;  // keeps the order of keys: templates print objects in that order

// Strict: UTF-8, no duplicate keys, at most 512 levels, nothing after the value. `place` opens the
// message: `config.json: line 3, column 7: ...`.
Result<Json> ParseJson(std::string_view text, std::string_view place);

}  // namespace lockstep

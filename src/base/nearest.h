// The known name nearest to what somebody wrote, for messages: `did you mean "llama"?`
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// By Levenshtein distance; empty when `known` is empty or nothing is near (over half of the letters
// differ).
std::string NearestName(std::string_view name, std::span<const std::string> known);

}  // namespace lockstep

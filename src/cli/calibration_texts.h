// The text that a model reads before its weights become codes, when no other is given.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

std::span<const std::string_view> CalibrationTexts();

}  // namespace lockstep

// The texts that a model reads before its weights become codes, and those on which the effect is
// measured, when no others are given.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

std::span<const std::string_view> CalibrationTexts();
std::span<const std::string_view> HeldOutTexts();

}  // namespace lockstep

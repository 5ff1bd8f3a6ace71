// Words for error messages: what a file looks like when it is not what was expected, and shapes.
// Names from files are quoted by base/quoted.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/quoted.h"  // what describes a file quotes its names

namespace lockstep {

// What the first bytes look like, as a phrase that ends a sentence: `an HTML page (the download
// returned a web page instead of the file)`. Reads at most a few hundred bytes.
std::string DescribeContent(std::span<const std::byte> bytes);

// True when the file opens like a safetensors file: eight bytes of length, then '{'.
bool LooksLikeSafetensors(std::span<const std::byte> bytes);
bool LooksLikeGguf(std::span<const std::byte> bytes);

std::string ShapeText(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace lockstep

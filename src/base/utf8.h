// UTF-8 as bytes: validation with the place of the first fault, and code points one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Where the text stops being UTF-8 (the terms of Rust's Utf8Error).
struct Utf8Fault {
  size_t valid_up_to = 0;  // bytes before it are valid
  std::optional<uint8_t>
      error_length;  // bytes of the bad sequence; absent: the text ends inside one
};

std::optional<Utf8Fault> FindUtf8Fault(std::string_view text);  // absent: all of it is valid

// Decodes the code point at text[i] and moves i past it. `text` must be valid UTF-8.
char32_t NextCodePoint(std::string_view text, size_t& i);
void AppendUtf8(char32_t code_point, std::string& out);

}  // namespace lockstep

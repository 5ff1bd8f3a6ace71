// Text from files and command lines as a message shows it: on one line, printable, of bounded
// length. Whatever a file names (a key, a tensor, a token) passes through here on its way into an
// Error.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// A name in quotes: control characters and bytes that are not UTF-8 are escaped, and what follows
// the first 96 bytes is left out.
std::string Quoted(std::string_view name);

// At most `most` names, quoted and joined by ", "; the rest becomes a count.
std::string QuotedList(std::span<const std::string> names, size_t most);

// The text with control characters and bytes that are not UTF-8 escaped as \x1b, and cut after
// `limit` bytes at the end of a code point ("...").
std::string OneLine(std::string_view text, size_t limit);

}  // namespace lockstep

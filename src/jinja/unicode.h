// Python's str methods that need to know what a character is. Text is valid UTF-8 everywhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

size_t CountCodePoints(std::string_view text);
std::u32string Decode(std::string_view text);
std::string Encode(std::u32string_view text);
// The byte offset of code point number n (text.size() when there are fewer).
size_t ByteOffset(std::string_view text, size_t n);

bool IsSpace(char32_t c);    // str.isspace
bool IsAlpha(char32_t c);    // str.isalpha
bool IsDecimal(char32_t c);  // str.isdecimal
bool IsNumeric(char32_t c);  // str.isnumeric
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);
bool IsPrintable(char32_t c);  // str.isprintable; decides what repr() escapes
bool IsIdentifierStart(char32_t c);
bool IsIdentifierPart(char32_t c);
bool IsLineBreak(char32_t c);  // where str.splitlines breaks

// Full case mappings (one letter may become three), as in Python.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);     // str.title: every word
std::string Capitalize(std::string_view text);  // first letter title case, the rest lower
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

enum class Side { kLeft, kRight, kBoth };
// str.strip: `characters` null strips white space.
std::string_view Strip(std::string_view text, Side side,
                       const std::string_view* characters = nullptr);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends = false);

}  // namespace lockstep::jinja

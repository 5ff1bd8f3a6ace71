#include "base/utf8.h"

#include <cstring>

namespace lockstep {
namespace {

// The well-formed sequences of Unicode, table 3-7: by first byte, the length and the range of the
// second byte; further bytes are 80..BF.
struct Lead {
  uint8_t length = 0;  // 0: not a lead byte
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};
constexpr Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

std::optional<Utf8Fault> FindUtf8Fault(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    // ASCII runs, eight bytes at a time.
    uint64_t eight;
    if (i + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + i, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Lead lead = LeadOf(static_cast<uint8_t>(text[i]));
    if (lead.length == 0) return Utf8Fault{i, uint8_t{1}};
    for (uint8_t k = 1; k < lead.length; ++k) {
      if (i + k == text.size()) return Utf8Fault{i, std::nullopt};
      const auto byte = static_cast<uint8_t>(text[i + k]);
      const bool good = k == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
      if (!good) return Utf8Fault{i, k};
    }
    i += lead.length;
  }
  return std::nullopt;
}

char32_t NextCodePoint(std::string_view text, size_t& i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[i + k]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return ++i, first;
  char32_t c;
  if (first < 0xE0) {
    c = char32_t(first & 0x1F) << 6 | (byte(1) & 0x3F);
    i += 2;
  } else if (first < 0xF0) {
    c = char32_t(first & 0x0F) << 12 | char32_t(byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    i += 3;
  } else {
    c = char32_t(first & 0x07) << 18 | char32_t(byte(1) & 0x3F) << 12 |
        char32_t(byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    i += 4;
  }
  return c;
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

}  // namespace lockstep

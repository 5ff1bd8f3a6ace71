// The byte alphabet of GPT-2: every byte as one printable character, so that a vocabulary of text
// can hold bytes (encoder.py, bytes_to_unicode). Bytes 33-126, 161-172 and 174-255 stand for
// themselves; the other 68, in order, are U+0100, U+0101, ...
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct ByteAlphabet {
  std::array<uint16_t, 256> char_of_byte{};
  std::array<int16_t, 0x144> byte_of_char{};  // -1: not in the alphabet
};

constexpr ByteAlphabet MakeByteAlphabet() {
  ByteAlphabet alphabet;
  alphabet.byte_of_char.fill(-1);
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const uint16_t c = itself ? static_cast<uint16_t>(b) : next++;
    alphabet.char_of_byte[static_cast<size_t>(b)] = c;
    alphabet.byte_of_char[c] = static_cast<int16_t>(b);
  }
  return alphabet;
}
inline constexpr ByteAlphabet kByteAlphabet = MakeByteAlphabet();

// Every byte of `bytes` as its character.
inline void AppendByteLevel(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    const uint16_t c = kByteAlphabet.char_of_byte[static_cast<uint8_t>(byte)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
}

// The bytes that `token` stands for; a token with any other character stands for its own UTF-8.
inline void AppendBytesOf(std::string_view token, std::string& out) {
  const size_t before = out.size();
  for (size_t i = 0; i < token.size(); ++i) {
    const auto first = static_cast<uint8_t>(token[i]);
    uint32_t c = first;
    if (first >= 0xC0 && first <= 0xC5 && i + 1 < token.size()) {  // up to U+017F
      c = uint32_t{first & 0x1Fu} << 6 | (static_cast<uint8_t>(token[++i]) & 0x3Fu);
    } else if (first >= 0x80) {
      c = 0xFFFF;
    }
    if (c >= kByteAlphabet.byte_of_char.size() || kByteAlphabet.byte_of_char[c] < 0) {
      out.resize(before);
      out.append(token);
      return;
    }
    out += static_cast<char>(kByteAlphabet.byte_of_char[c]);
  }
}

}  // namespace lockstep

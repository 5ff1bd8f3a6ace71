// For tests: files put together byte by byte, and a folder that goes away again.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/testing.h"

namespace lockstep {

// Appends little-endian fields: Bytes().U32(3).Text("abc").
class Bytes {
 public:
  Bytes& Raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  Bytes& U8(uint8_t x) { return Field(x, 1); }
  Bytes& U32(uint64_t x) { return Field(x, 4); }
  Bytes& U64(uint64_t x) { return Field(x, 8); }
  Bytes& Text(std::string_view text) { return U64(text.size()).Raw(text); }  // GGUF's string
  Bytes& PadTo(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  Bytes& Zeros(size_t n) {
    bytes_.append(n, '\0');
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  Bytes& Field(uint64_t x, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(x >> 8 * i & 255);
    return *this;
  }
  std::string bytes_;
};

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A safetensors file of this header and this many zero bytes of data.
inline std::string Safetensors(std::string_view header, size_t data_bytes) {
  return Bytes().U64(header.size()).Raw(header).Zeros(data_bytes).text();
}

// An error must be there, be one line and say all of these.
template <typename T>
void ExpectError(const T& result, std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(result.has_value());
  const std::string& message = result.error().message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 1000u) << message;
  for (const std::string_view part : parts)
    EXPECT_NE(message.find(part), std::string::npos)
        << "expected \"" << part << "\" in: " << message;
}

}  // namespace lockstep

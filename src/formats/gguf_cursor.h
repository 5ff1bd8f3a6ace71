// GgufCursor: reads a GGUF file front to back; every read is checked against the bytes that are
// left, so that no count or length from the file is believed before its bytes are seen to exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "formats/gguf_metadata.h"

namespace lockstep {

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, std::string_view place)
      : bytes_(bytes), place_(place) {}

  std::string_view place() const { return place_; }
  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  Result<T> Read(std::string_view what) {
    if (left() < sizeof(T)) return Ends(what, sizeof(T));
    T x;
    std::memcpy(&x, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return x;
  }

  // u64 length, then that many bytes.
  Result<std::string_view> ReadString(std::string_view what);
  // u32 type, then the value; `key` names it in messages.
  Result<GgufValue> ReadValue(std::string_view key);

 private:
  tl::unexpected<Error> Ends(std::string_view what, uint64_t needed) const;
  Result<std::span<const std::byte>> Take(std::string_view what, uint64_t n);
  Status ReadArray(std::string_view key, GgufValue& value);

  std::span<const std::byte> bytes_;
  std::string_view place_;
  uint64_t position_ = 0;
};

// Bytes of one element; 0 for strings and arrays, whose size is written in the file.
size_t GgufTypeSize(GgufType type);
std::string_view GgufTypeName(GgufType type);  // "u32", "string", ...

}  // namespace lockstep

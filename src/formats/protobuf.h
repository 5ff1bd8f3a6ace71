// ProtoReader: protobuf's wire format, field by field, over bytes that stay where they are: every
// field says which bytes it occupies, so that a writer can copy the ones it does not change. Knows
// no message; onnx_read.cc does. https://protobuf.dev/programming-guides/encoding
//
// No length is believed before its bytes are seen to exist. Nothing recurses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lockstep {

enum class ProtoWire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  uint32_t number = 0;
  ProtoWire wire = ProtoWire::kVarint;
  uint64_t value = 0;                // a varint, or the bits of a fixed field
  std::span<const std::byte> bytes;  // kBytes: what is inside
  std::span<const std::byte> whole;  // tag, length and all

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

class ProtoReader {
 public:
  // `origin` is the first byte of the file, for the offsets in messages.
  ProtoReader(std::span<const std::byte> message, const std::byte* origin, std::string_view place)
      : rest_(message), origin_(origin), place_(place) {}

  bool done() const { return rest_.empty(); }
  Result<ProtoField> Next();
  ProtoReader Inside(const ProtoField& field) const { return {field.bytes, origin_, place_}; }

  // An error at this field: `place: byte 123: text`.
  tl::unexpected<Error> FailAt(const ProtoField& field, std::string_view text) const;
  Status Expect(const ProtoField& field, ProtoWire wire, std::string_view what) const;
  // A repeated number, packed or one by one, appended to `out`.
  Status Varints(const ProtoField& field, std::string_view what, std::vector<int64_t>& out) const;
  // A repeated float (4 bytes) or double (8 bytes), packed or one by one: its little-endian bytes.
  Status Fixed(const ProtoField& field, size_t width, std::string_view what,
               std::vector<std::byte>& out) const;

 private:
  Result<uint64_t> Varint(std::string_view what);
  tl::unexpected<Error> FailAt(const std::byte* at, std::string_view text) const;

  std::span<const std::byte> rest_;
  const std::byte* origin_;
  std::string_view place_;
};

// For writers: bytes are appended.
void AppendVarint(uint64_t value, std::string& out);
void AppendVarintField(uint32_t number, uint64_t value, std::string& out);
void AppendBytesField(uint32_t number, std::string_view bytes, std::string& out);
void AppendFloatField(uint32_t number, float value, std::string& out);

}  // namespace lockstep

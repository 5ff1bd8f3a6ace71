#include "formats/protobuf.h"

#include <bit>
#include <cstring>

namespace lockstep {
namespace {

constexpr size_t kMaxVarintBytes = 10;  // of 64 bits, 7 a byte

uint64_t LittleEndian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
  return value;
}

}  // namespace

tl::unexpected<Error> ProtoReader::FailAt(const std::byte* at, std::string_view text) const {
  return InputError("{}: byte {}: {}", place_, at - origin_, text);
}

tl::unexpected<Error> ProtoReader::FailAt(const ProtoField& field, std::string_view text) const {
  return FailAt(field.whole.data(), text);
}

Result<uint64_t> ProtoReader::Varint(std::string_view what) {
  uint64_t value = 0;
  for (size_t i = 0; i < kMaxVarintBytes; ++i) {
    if (i == rest_.size())
      return FailAt(rest_.data() + i, fmt::format("the message ends inside {}", what));
    const auto byte = std::to_integer<uint64_t>(rest_[i]);
    // The tenth byte has room for one bit; protobuf's own readers drop the others.
    value |= (byte & 127) << 7 * i;
    if (byte < 128) {
      rest_ = rest_.subspan(i + 1);
      return value;
    }
  }
  return FailAt(rest_.data(), fmt::format("{} has more than {} bytes", what, kMaxVarintBytes));
}

Result<ProtoField> ProtoReader::Next() {
  const std::byte* const begin = rest_.data();
  LS_TRY(const uint64_t tag, Varint("a field's tag"));
  const uint64_t number = tag >> 3;
  if (number == 0 || number >> 29 != 0)
    return FailAt(begin, fmt::format("field number {}, expected 1 to 536870911 (is this an ONNX "
                                     "file?)",
                                     number));
  ProtoField field{.number = static_cast<uint32_t>(number),
                   .wire = static_cast<ProtoWire>(tag & 7)};
  size_t size = 0;
  switch (field.wire) {
    case ProtoWire::kVarint: {
      LS_TRY(field.value, Varint("a number"));
      break;
    }
    case ProtoWire::kFixed64:
      size = 8;
      break;
    case ProtoWire::kFixed32:
      size = 4;
      break;
    case ProtoWire::kBytes: {
      LS_TRY(const uint64_t length, Varint("a field's length"));
      if (length > rest_.size())
        return FailAt(begin, fmt::format("field {} says {} bytes, but {} are left (download "
                                         "incomplete?)",
                                         number, length, rest_.size()));
      field.bytes = rest_.first(static_cast<size_t>(length));
      size = field.bytes.size();
      break;
    }
    default:
      return FailAt(begin, fmt::format("field {} has wire type {}, expected 0, 1, 2 or 5 (is this "
                                       "an ONNX file?)",
                                       number, tag & 7));
  }
  if (size > rest_.size())
    return FailAt(
        begin, fmt::format("field {} has {} bytes, but {} are left", number, size, rest_.size()));
  if (field.wire == ProtoWire::kFixed32 || field.wire == ProtoWire::kFixed64)
    field.value = LittleEndian(rest_.first(size));
  rest_ = rest_.subspan(size);
  field.whole = {begin, rest_.data()};
  return field;
}

Status ProtoReader::Expect(const ProtoField& field, ProtoWire wire, std::string_view what) const {
  if (field.wire == wire) return {};
  return FailAt(field, fmt::format("{} has wire type {}, expected {}", what,
                                   static_cast<int>(field.wire), static_cast<int>(wire)));
}

Status ProtoReader::Varints(const ProtoField& field, std::string_view what,
                            std::vector<int64_t>& out) const {
  if (field.wire == ProtoWire::kVarint) {
    out.push_back(static_cast<int64_t>(field.value));
    return {};
  }
  LS_RETURN_IF_ERROR(Expect(field, ProtoWire::kBytes, what));
  for (ProtoReader inside = Inside(field); !inside.done();) {
    LS_TRY(const uint64_t value, inside.Varint(what));
    out.push_back(static_cast<int64_t>(value));
  }
  return {};
}

Status ProtoReader::Fixed(const ProtoField& field, size_t width, std::string_view what,
                          std::vector<std::byte>& out) const {
  if (field.wire == (width == 4 ? ProtoWire::kFixed32 : ProtoWire::kFixed64)) {
    const auto value = field.whole.last(width);
    out.insert(out.end(), value.begin(), value.end());
    return {};
  }
  LS_RETURN_IF_ERROR(Expect(field, ProtoWire::kBytes, what));
  if (field.bytes.size() % width != 0)
    return FailAt(field, fmt::format("{} has {} bytes, expected a multiple of {}", what,
                                     field.bytes.size(), width));
  out.insert(out.end(), field.bytes.begin(), field.bytes.end());
  return {};
}

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

void AppendVarintField(uint32_t number, uint64_t value, std::string& out) {
  AppendVarint(uint64_t{number} << 3 | static_cast<uint64_t>(ProtoWire::kVarint), out);
  AppendVarint(value, out);
}

void AppendBytesField(uint32_t number, std::string_view bytes, std::string& out) {
  AppendVarint(uint64_t{number} << 3 | static_cast<uint64_t>(ProtoWire::kBytes), out);
  AppendVarint(bytes.size(), out);
  out += bytes;
}

void AppendFloatField(uint32_t number, float value, std::string& out) {
  AppendVarint(uint64_t{number} << 3 | static_cast<uint64_t>(ProtoWire::kFixed32), out);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) out += static_cast<char>(bits >> 8 * i);
}

}  // namespace lockstep

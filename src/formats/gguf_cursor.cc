#include "formats/gguf_cursor.h"

#include <algorithm>

#include "formats/describe.h"

namespace lockstep {
namespace {

struct TypeRow {
  std::string_view name;
  size_t size;
};
// Indexed by GgufType; sorted by the number in the file.
constexpr TypeRow kTypes[] = {
    {.name = "u8", .size = 1},    {.name = "i8", .size = 1},   {.name = "u16", .size = 2},
    {.name = "i16", .size = 2},   {.name = "u32", .size = 4},  {.name = "i32", .size = 4},
    {.name = "f32", .size = 4},   {.name = "bool", .size = 1}, {.name = "string", .size = 0},
    {.name = "array", .size = 0}, {.name = "u64", .size = 8},  {.name = "i64", .size = 8},
    {.name = "f64", .size = 8},
};

bool AreBools(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; });
}

}  // namespace

size_t GgufTypeSize(GgufType type) { return kTypes[static_cast<size_t>(type)].size; }
std::string_view GgufTypeName(GgufType type) { return kTypes[static_cast<size_t>(type)].name; }

tl::unexpected<Error> GgufCursor::Ends(std::string_view what, uint64_t needed) const {
  return InputError(
      "{}: {} needs {} bytes at byte {} but the file has only {} there (download incomplete?)",
      place_, what, needed, position_, left());
}

Result<std::span<const std::byte>> GgufCursor::Take(std::string_view what, uint64_t n) {
  if (n > left()) return Ends(what, n);
  const auto taken = bytes_.subspan(position_, n);
  position_ += n;
  return taken;
}

Result<std::string_view> GgufCursor::ReadString(std::string_view what) {
  LS_TRY(const uint64_t length, Read<uint64_t>(what));
  LS_TRY(const auto taken, Take(what, length));
  return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
}

Status GgufCursor::ReadArray(std::string_view key, GgufValue& value) {
  const std::string what = fmt::format("key {}", Quoted(key));
  LS_TRY(const uint32_t type, Read<uint32_t>(what));
  if (type >= std::size(kTypes))
    return InputError("{}: {} is an array of type {}, expected a type from 0 to {}", place_, what,
                      type, std::size(kTypes) - 1);
  value.element_type = static_cast<GgufType>(type);
  if (value.element_type == GgufType::kArray)
    return UnsupportedError("{}: {} is an array of arrays, which no GGUF reader knows", place_,
                            what);
  LS_TRY(value.count, Read<uint64_t>(what));
  const size_t size = GgufTypeSize(value.element_type);
  // An element has at least one byte, a string at least its length: checked before multiplying.
  if (value.count > left() / std::max<size_t>(size, size == 0 ? sizeof(uint64_t) : 1))
    return InputError("{}: {} announces {} elements of {} but the file has only {} bytes left",
                      place_, what, value.count, GgufTypeName(value.element_type), left());
  const uint64_t begin = position_;
  if (size > 0) {
    position_ += value.count * size;
  } else {
    for (uint64_t i = 0; i < value.count; ++i) {
      uint64_t length = 0;
      if (left() < sizeof length) return Ends(what, sizeof length);
      std::memcpy(&length, bytes_.data() + position_, sizeof length);
      position_ += sizeof length;
      if (length > left()) return Ends(what, length);
      position_ += length;
    }
  }
  value.bytes = bytes_.subspan(begin, position_ - begin);
  if (value.element_type == GgufType::kBool && !AreBools(value.bytes))
    return InputError("{}: {} holds a bool that is neither 0 nor 1", place_, what);
  return {};
}

Result<GgufValue> GgufCursor::ReadValue(std::string_view key) {
  const std::string what = fmt::format("key {}", Quoted(key));
  LS_TRY(const uint32_t type, Read<uint32_t>(what));
  if (type >= std::size(kTypes))
    return InputError("{}: {} has type {}, expected a type from 0 to {}", place_, what, type,
                      std::size(kTypes) - 1);
  GgufValue value;
  value.type = static_cast<GgufType>(type);
  value.element_type = value.type;
  if (value.type == GgufType::kArray) {
    LS_RETURN_IF_ERROR(ReadArray(key, value));
  } else if (value.type == GgufType::kString) {
    LS_TRY(const std::string_view text, ReadString(what));
    value.bytes = std::as_bytes(std::span(text));
  } else {
    LS_TRY(value.bytes, Take(what, GgufTypeSize(value.type)));
    if (value.type == GgufType::kBool && !AreBools(value.bytes))
      return InputError("{}: {} is a bool of {}, expected 0 or 1", place_, what,
                        std::to_integer<int>(value.bytes[0]));
  }
  return value;
}

}  // namespace lockstep

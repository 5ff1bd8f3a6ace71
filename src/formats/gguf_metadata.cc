#include "formats/gguf_metadata.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/utf8.h"
#include "formats/gguf_cursor.h"

namespace lockstep {
namespace {

template <typename T>
T Load(const std::byte* source) {
  T x;
  std::memcpy(&x, source, sizeof x);
  return x;
}

bool IsInteger(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kString &&
         type != GgufType::kArray;
}

bool IsNumber(GgufType type) {
  return IsInteger(type) || type == GgufType::kF32 || type == GgufType::kF64;
}

// Calls fn with the number at `source`, which has a numeric type or bool.
template <typename Fn>
auto WithNumber(GgufType type, const std::byte* source, Fn fn) {
  switch (type) {
    case GgufType::kI8:
      return fn(Load<int8_t>(source));
    case GgufType::kU16:
      return fn(Load<uint16_t>(source));
    case GgufType::kI16:
      return fn(Load<int16_t>(source));
    case GgufType::kU32:
      return fn(Load<uint32_t>(source));
    case GgufType::kI32:
      return fn(Load<int32_t>(source));
    case GgufType::kF32:
      return fn(Load<float>(source));
    case GgufType::kU64:
      return fn(Load<uint64_t>(source));
    case GgufType::kI64:
      return fn(Load<int64_t>(source));
    case GgufType::kF64:
      return fn(Load<double>(source));
    default:
      return fn(Load<uint8_t>(source));  // u8 and bool
  }
}

std::optional<int64_t> IntegerAt(GgufType type, const std::byte* source) {
  if (type == GgufType::kU64 &&
      Load<uint64_t>(source) > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return WithNumber(type, source, [](auto x) { return static_cast<int64_t>(x); });
}

double DoubleAt(GgufType type, const std::byte* source) {
  return WithNumber(type, source, [](auto x) { return static_cast<double>(x); });
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A Json string must be UTF-8 to be printed; the bytes of a vocabulary need not be.
std::string ValidUtf8(std::string_view text) {
  std::string out;
  while (const auto fault = FindUtf8Fault(text)) {
    out += text.substr(0, fault->valid_up_to);
    out += "\xef\xbf\xbd";
    text.remove_prefix(
        std::min(text.size(), fault->valid_up_to + fault->error_length.value_or(text.size())));
  }
  return out.append(text);
}

Json NumberToJson(GgufType type, const std::byte* source) {
  if (type == GgufType::kBool) return Load<uint8_t>(source) != 0;
  return WithNumber(type, source, [](auto x) -> Json {
    if constexpr (std::is_same_v<decltype(x), float>) {
      // The shortest decimal that reads back as this float: 1e-05, not 9.999999747378752e-06.
      if (std::isfinite(x)) return Json::parse(fmt::format("{}", x), nullptr, false);
    }
    return x;
  });
}

}  // namespace

std::optional<int64_t> GgufValue::AsInt() const {
  if (!IsInteger(type) || bytes.size() < GgufTypeSize(type)) return std::nullopt;
  return IntegerAt(type, bytes.data());
}

std::optional<double> GgufValue::AsDouble() const {
  if (!IsNumber(type) || type == GgufType::kBool || bytes.size() < GgufTypeSize(type))
    return std::nullopt;
  return DoubleAt(type, bytes.data());
}

std::optional<bool> GgufValue::AsBool() const {
  if (type != GgufType::kBool || bytes.empty()) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufValue::AsString() const {
  if (type != GgufType::kString) return std::nullopt;
  return Text(bytes);
}

std::optional<std::vector<std::string_view>> GgufValue::AsStrings() const {
  if (type != GgufType::kArray || element_type != GgufType::kString ||
      count > bytes.size() / sizeof(uint64_t))
    return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(count);
  std::span<const std::byte> rest = bytes;
  for (uint64_t i = 0; i < count; ++i) {
    if (rest.size() < sizeof(uint64_t)) return std::nullopt;
    const auto length = Load<uint64_t>(rest.data());
    rest = rest.subspan(sizeof(uint64_t));
    if (length > rest.size()) return std::nullopt;
    out.push_back(Text(rest.first(length)));
    rest = rest.subspan(length);
  }
  return out;
}

std::optional<std::vector<double>> GgufValue::AsDoubles() const {
  if (type != GgufType::kArray || !IsNumber(element_type)) return std::nullopt;
  const size_t size = GgufTypeSize(element_type);
  if (count > bytes.size() / size) return std::nullopt;
  std::vector<double> out(count);
  for (uint64_t i = 0; i < count; ++i) out[i] = DoubleAt(element_type, bytes.data() + i * size);
  return out;
}

std::optional<std::vector<int64_t>> GgufValue::AsInts() const {
  if (type != GgufType::kArray || !IsInteger(element_type)) return std::nullopt;
  const size_t size = GgufTypeSize(element_type);
  if (count > bytes.size() / size) return std::nullopt;
  std::vector<int64_t> out(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto x = IntegerAt(element_type, bytes.data() + i * size);
    if (!x) return std::nullopt;
    out[i] = *x;
  }
  return out;
}

Json GgufValue::ToJson(size_t max_array) const {
  if (type == GgufType::kString) return ValidUtf8(Text(bytes));
  if (type != GgufType::kArray)
    return bytes.size() < GgufTypeSize(type) ? Json() : NumberToJson(type, bytes.data());
  if (count > max_array) return fmt::format("{} × {}", count, GgufTypeName(element_type));
  Json out = Json::array();
  if (element_type == GgufType::kString) {
    if (const auto strings = AsStrings())
      for (const std::string_view text : *strings) out.push_back(ValidUtf8(text));
    return out;
  }
  const size_t size = GgufTypeSize(element_type);
  if (size == 0 || count > bytes.size() / size) return out;
  for (uint64_t i = 0; i < count; ++i)
    out.push_back(NumberToJson(element_type, bytes.data() + i * size));
  return out;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

}  // namespace lockstep

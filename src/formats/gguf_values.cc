#include "formats/gguf_values.h"

#include <algorithm>

namespace lockstep {
namespace {

template <typename T>
std::string BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
std::string BytesOfAll(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

GgufValues::Entry& GgufValues::EntryOf(std::string_view key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) return *found;
  entries_.push_back({.key = std::string(key), .value = {}, .bytes = {}});
  return entries_.back();
}

void GgufValues::Set(std::string_view key, GgufType type, std::string bytes) {
  Entry& entry = EntryOf(key);
  entry.bytes = std::move(bytes);
  entry.value = {.type = type, .element_type = type, .count = 1, .bytes = {}};
}

void GgufValues::SetArray(std::string_view key, GgufType element_type, uint64_t count,
                          std::string bytes) {
  Set(key, GgufType::kArray, std::move(bytes));
  GgufValue& value = EntryOf(key).value;
  value.element_type = element_type;
  value.count = count;
}

void GgufValues::SetInteger(std::string_view key, uint32_t value) {
  Set(key, GgufType::kU32, BytesOf(value));
}

void GgufValues::SetNumber(std::string_view key, double value) {
  Set(key, GgufType::kF32, BytesOf(static_cast<float>(value)));
}

void GgufValues::SetBool(std::string_view key, bool value) {
  Set(key, GgufType::kBool, BytesOf(uint8_t{value}));
}

void GgufValues::SetString(std::string_view key, std::string_view value) {
  Set(key, GgufType::kString, std::string(value));
}

void GgufValues::SetIntegers(std::string_view key, std::span<const int32_t> values) {
  SetArray(key, GgufType::kI32, values.size(), BytesOfAll(values));
}

void GgufValues::SetNumbers(std::string_view key, std::span<const float> values) {
  SetArray(key, GgufType::kF32, values.size(), BytesOfAll(values));
}

void GgufValues::SetBools(std::string_view key, const std::vector<bool>& values) {
  std::string bytes;
  for (const bool value : values) bytes += static_cast<char>(value);
  SetArray(key, GgufType::kBool, values.size(), std::move(bytes));
}

void GgufValues::SetStrings(std::string_view key, std::span<const std::string> values) {
  std::string bytes;
  size_t size = 0;
  for (const std::string& value : values) size += sizeof(uint64_t) + value.size();
  bytes.reserve(size);
  for (const std::string& value : values) bytes += BytesOf(uint64_t{value.size()}) + value;
  SetArray(key, GgufType::kString, values.size(), std::move(bytes));
}

void GgufValues::Copy(std::string_view key, const GgufValue& value) {
  Entry& entry = EntryOf(key);
  entry.bytes.assign(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
  entry.value = value;
  entry.value.bytes = {};
}

void GgufValues::Erase(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

GgufMetadata GgufValues::View() const {
  GgufMetadata metadata;
  for (const Entry& entry : entries_) {
    GgufValue value = entry.value;
    value.bytes = std::as_bytes(std::span(entry.bytes));
    metadata.mutable_values().emplace(entry.key, value);
  }
  return metadata;
}

}  // namespace lockstep

// GgufMetadata: the key-values of a GGUF file, undecoded until asked for. Arrays stay views of the
// mapped file: a vocabulary of 262,144 strings costs nothing until the tokenizer reads it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace lockstep {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element_type = GgufType::kU8;  // of an array
  uint64_t count = 1;                     // elements of an array
  std::span<const std::byte> bytes;       // the value, without its type; checked to be complete

  // Empty when the value has another type. Integers of any width and sign convert when they fit;
  // AsInt takes bool as 0/1; AsDouble takes integers as well.
  std::optional<int64_t> AsInt() const;
  std::optional<double> AsDouble() const;
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;
  std::optional<std::vector<std::string_view>> AsStrings() const;  // views of the mapped file
  std::optional<std::vector<double>> AsDoubles() const;            // numeric or bool arrays
  std::optional<std::vector<int64_t>> AsInts() const;              // integer or bool arrays
  Json ToJson(size_t max_array = 8) const;  // for inspect; longer arrays become a phrase
};

class GgufMetadata {
 public:
  const GgufValue* Find(std::string_view key) const;
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  std::map<std::string, GgufValue, std::less<>>& mutable_values() { return values_; }

 private:
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace lockstep

// GgufValues: the key-values of a GGUF file that is about to be written. Owns what it holds and
// keeps the order in which keys were set; View() shows it to whoever reads GGUF files.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_metadata.h"

namespace lockstep {

class GgufValues {
 public:
  struct Entry {
    std::string key;
    GgufValue value;    // its bytes are `bytes`
    std::string bytes;  // as the file holds them; of a string without its length
  };

  // Each replaces a value that the key had. Integers are u32, numbers f32, as gguf-py writes them;
  // lists of integers i32.
  void SetInteger(std::string_view key, uint32_t value);
  void SetNumber(std::string_view key, double value);
  void SetBool(std::string_view key, bool value);
  void SetString(std::string_view key, std::string_view value);
  void SetIntegers(std::string_view key, std::span<const int32_t> values);
  void SetNumbers(std::string_view key, std::span<const float> values);
  void SetBools(std::string_view key, const std::vector<bool>& values);
  void SetStrings(std::string_view key, std::span<const std::string> values);
  void Copy(std::string_view key, const GgufValue& value);
  void Erase(std::string_view key);

  const std::deque<Entry>& entries() const { return entries_; }
  // Views of this object: it must outlive them and not change.
  GgufMetadata View() const;

 private:
  void Set(std::string_view key, GgufType type, std::string bytes);
  void SetArray(std::string_view key, GgufType element_type, uint64_t count, std::string bytes);
  Entry& EntryOf(std::string_view key);

  std::deque<Entry> entries_;  // addresses stay
};

}  // namespace lockstep

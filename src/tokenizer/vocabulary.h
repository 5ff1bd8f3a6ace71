// Vocabulary: token text to id and back, in one arena with one hash table. Every model owns one; it
// is written while a file is read and never changes afterwards. Invariant: no text and no id is
// given twice; ids may have holes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lockstep {

uint64_t HashBytes(std::string_view bytes);

class Vocabulary {
 public:
  void Reserve(size_t num_tokens, size_t num_bytes);

  // Refuses a second token of the same text or id, negative ids, and ids far beyond the number of
  // tokens
  // (`expected_tokens`): id_bound() decides how much memory others allocate.
  Status Add(std::string_view text, int64_t id, size_t expected_tokens);

  int32_t Find(std::string_view text) const;  // -1: no such token
  std::optional<std::string_view> Text(int64_t id) const;
  size_t size() const { return entries_.size(); }
  size_t id_bound() const { return entry_of_id_.size(); }  // largest id + 1

  // Calls f(text, id) for every token, in the order of Add.
  template <typename F>
  void ForEach(F&& f) const {
    for (const Entry& entry : entries_) f(TextOf(entry), entry.id);
  }

 private:
  struct Entry {
    uint32_t begin, length;  // in arena_
    int32_t id;
  };
  std::string_view TextOf(const Entry& entry) const {
    return std::string_view(arena_).substr(entry.begin, entry.length);
  }
  void Grow(size_t capacity);

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> entry_of_id_;  // index + 1; 0: no token
  // High half: high half of the hash; low half: entry index + 1. 0: free. At most half full.
  std::vector<uint64_t> slots_ = std::vector<uint64_t>(16);
};

}  // namespace lockstep

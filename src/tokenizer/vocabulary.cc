#include "tokenizer/vocabulary.h"

#include <cstring>

#include "tokenizer/flat_map.h"

namespace lockstep {

uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes.size();
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * 0x9FB21C651E98DF25u;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  if (left > 0) std::memcpy(&word, p, left);
  return MixBits(hash ^ word);
}

void Vocabulary::Reserve(size_t num_tokens, size_t num_bytes) {
  arena_.reserve(num_bytes);
  entries_.reserve(num_tokens);
  entry_of_id_.reserve(num_tokens);
  size_t capacity = slots_.size();
  while (capacity < num_tokens * 2) capacity *= 2;
  if (capacity > slots_.size()) Grow(capacity);
}

void Vocabulary::Grow(size_t capacity) {
  slots_.assign(capacity, 0);
  for (size_t k = 0; k < entries_.size(); ++k) {
    const uint64_t hash = HashBytes(TextOf(entries_[k]));
    size_t i = hash & (capacity - 1);
    while (slots_[i] != 0) i = (i + 1) & (capacity - 1);
    slots_[i] = (hash >> 32 << 32) | (k + 1);
  }
}

Status Vocabulary::Add(std::string_view text, int64_t id, size_t expected_tokens) {
  const auto limit = static_cast<int64_t>((size_t{1} << 20) + 16 * expected_tokens);
  if (id < 0 || id >= limit || id >= (int64_t{1} << 31)) {
    return InputError(
        "the token \"{}\" has the id {}, expected an id from 0 to {} for a vocabulary of {} tokens",
        text.substr(0, 60), id, limit - 1, expected_tokens);
  }
  if (entries_.size() * 2 >= slots_.size()) Grow(slots_.size() * 2);
  const uint64_t hash = HashBytes(text);
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    if (slots_[i] >> 32 == hash >> 32 && TextOf(entries_[(slots_[i] & 0xFFFFFFFF) - 1]) == text) {
      return InputError("the token \"{}\" is given twice, with the ids {} and {}",
                        text.substr(0, 60), entries_[(slots_[i] & 0xFFFFFFFF) - 1].id, id);
    }
  }
  if (static_cast<size_t>(id) >= entry_of_id_.size())
    entry_of_id_.resize(static_cast<size_t>(id) + 1);
  uint32_t& entry = entry_of_id_[static_cast<size_t>(id)];
  if (entry != 0) {
    return InputError("the tokens \"{}\" and \"{}\" have the same id {}",
                      TextOf(entries_[entry - 1]).substr(0, 60), text.substr(0, 60), id);
  }
  entries_.push_back({static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(text.size()),
                      static_cast<int32_t>(id)});
  arena_.append(text);
  entry = static_cast<uint32_t>(entries_.size());
  slots_[i] = (hash >> 32 << 32) | entries_.size();
  return {};
}

int32_t Vocabulary::Find(std::string_view text) const {
  const uint64_t hash = HashBytes(text);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i] != 0; i = (i + 1) & mask) {
    if (slots_[i] >> 32 != hash >> 32) continue;
    const Entry& entry = entries_[(slots_[i] & 0xFFFFFFFF) - 1];
    if (TextOf(entry) == text) return entry.id;
  }
  return -1;
}

std::optional<std::string_view> Vocabulary::Text(int64_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= entry_of_id_.size()) return std::nullopt;
  const uint32_t entry = entry_of_id_[static_cast<size_t>(id)];
  if (entry == 0) return std::nullopt;
  return TextOf(entries_[entry - 1]);
}

}  // namespace lockstep

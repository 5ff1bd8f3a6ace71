// FlatMap: 64-bit keys to small values in one array with linear probing. It holds a tokenizer's
// merges (key = left id, right id) and the edges of its tries; written once while loading, then
// only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

inline uint64_t MixBits(
    uint64_t x) {  // the finaliser of splitmix64: every input bit reaches every output bit
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

template <typename Value>
class FlatMap {
 public:
  static constexpr uint64_t kNoKey =
      ~uint64_t{0};  // never a key: ids and node numbers are below 2^31

  FlatMap() : slots_(16) {}

  void Reserve(size_t count) {
    size_t capacity = slots_.size();
    while (capacity < count * 2) capacity *= 2;  // at most half full: a miss ends after ~1.5 probes
    if (capacity > slots_.size()) Rehash(capacity);
  }

  size_t size() const { return size_; }

  const Value* Find(uint64_t key) const {
    for (size_t i = MixBits(key);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.key == key) return &slot.value;
      if (slot.key == kNoKey) return nullptr;
    }
  }

  // The value of `key`, default-constructed when it is new.
  Value& operator[](uint64_t key) {
    if ((size_ + 1) * 2 > slots_.size()) Rehash(slots_.size() * 2);
    Slot& slot = Probe(key);
    if (slot.key == kNoKey) {
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }

 private:
  struct Slot {
    uint64_t key = kNoKey;
    Value value{};
  };

  Slot& Probe(uint64_t key) {
    size_t i = MixBits(key);
    while (slots_[i & (slots_.size() - 1)].key != kNoKey &&
           slots_[i & (slots_.size() - 1)].key != key) {
      ++i;
    }
    return slots_[i & (slots_.size() - 1)];
  }

  void Rehash(size_t capacity) {
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kNoKey) Probe(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace lockstep

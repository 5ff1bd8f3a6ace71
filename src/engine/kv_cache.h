// KvCache: the memory of all sequences, in pages of kPageTokens positions per layer. Sequences with
// the same beginning share its pages; a layer with a window keeps only the pages that the window
// can still reach. Which page holds a position never changes a number.
//
// Not thread-safe: one owner (Engine) calls it between walks; during a walk pages of distinct
// positions are written by distinct workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/kv_page.h"

namespace lockstep {

// What a layer keeps of a position.
struct KvLayer {
  size_t page_bytes = 0;
  // A position reads this many positions, itself included; none: all before it.
  std::optional<int64_t> window;
};

class KvCache;

// One sequence's page tables. Movable; gives its pages back when destroyed. Must not outlive its
// cache.
class KvSequence {
 public:
  KvSequence() = default;
  KvSequence(KvSequence&&) noexcept;
  KvSequence& operator=(KvSequence&&) noexcept;
  ~KvSequence();

  int64_t length() const { return length_; }
  // The page of positions [page * kPageTokens, ...): 64-byte aligned; nullptr once dropped.
  std::byte* Page(size_t layer, int64_t page) const;

 private:
  friend class KvCache;
  KvCache* cache_ = nullptr;
  int64_t length_ = 0;
  // pages_[layer][page]; handles that the cache counts references of.
  std::vector<std::vector<struct KvPage*>> pages_;
};

class KvCache {
 public:
  // limit_bytes: pages beyond it are refused with a sentence; 0: no limit of our own.
  explicit KvCache(std::vector<KvLayer> layers, size_t limit_bytes = 0);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  KvSequence NewSequence();
  // Makes positions [length, length + count) writable: pages exist and belong to this sequence
  // alone (a shared last page is copied). On error (memory) the sequence is as it was.
  Result<void> Extend(KvSequence& sequence, int64_t count);
  // count positions were written: length grows, pages that no window reaches any more go back.
  void Commit(KvSequence& sequence, int64_t count);
  // Cuts the sequence to `length` <= its length, or, where a window's pages are gone that positions
  // from there on would read, to less (at worst 0); returns what is held. What follows from there
  // has the numbers of a fresh sequence.
  int64_t Truncate(KvSequence& sequence, int64_t length);
  // A new sequence that shares the first `length` positions (or fewer, as Truncate) of another.
  KvSequence Fork(const KvSequence& sequence, int64_t length);

  size_t bytes_in_use() const;  // of pages that some sequence holds
  size_t bytes_held() const;    // from the system, free pages included

 private:
  friend class KvSequence;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

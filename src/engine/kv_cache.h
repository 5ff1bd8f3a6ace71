// KvCache: the memory of all sequences, in pages of kPageTokens positions per layer. Sequences with
// the same beginning share its pages; a layer with a window keeps only the pages that the window
// can still reach. Which page holds a position never changes a number.
//
// A page is zero when a sequence gets it, except for a copy of a shared one; so whatever a kernel
// reads beyond a sequence's length was written as a value of some position or is zero. A page
// belongs to one sequence unless its count of references is above 1, and only then is it read-only.
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
  size_t page_bytes = 0;  // 0: nothing, and it has no pages
  // A position reads this many positions, itself included; none: all before it.
  std::optional<int64_t> window;
};

// A window's layer keeps this many positions more than it needs, so that a short rewind (a rejected
// draft, the last words of a conversation) is free.
inline constexpr int64_t kWindowSlack = 64;

class KvCache;

// One sequence's page tables. Movable; gives its pages back when destroyed. Must not outlive its
// cache.
class KvSequence {
 public:
  KvSequence() = default;
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  ~KvSequence();

  int64_t length() const { return length_; }
  // [position / kPageTokens], as attention reads them.
  const KvPageRef* Pages(size_t layer) const { return layers_[layer].pages.data(); }
  // The page of positions [page * kPageTokens, ...): 64-byte aligned; nullptr once dropped.
  std::byte* Page(size_t layer, int64_t page) const {
    return layers_[layer].pages[static_cast<size_t>(page)].data;
  }

 private:
  friend class KvCache;
  using Slot = KvPageRef;
  struct Table {
    std::vector<Slot> pages;
    size_t first = 0;  // of the pages that are still held
  };
  KvCache* cache_ = nullptr;
  int64_t length_ = 0;
  std::vector<Table> layers_;
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
  // alone (a shared last page is copied). On error (memory) the sequence is as it was. Twice is as
  // once; what is then not committed, Truncate gives back.
  Status Extend(KvSequence& sequence, int64_t count);
  // count positions were written: length grows, pages that no window reaches any more go back.
  void Commit(KvSequence& sequence, int64_t count);
  // Cuts the sequence to `length` <= its length, or, where a window's pages are gone that positions
  // from there on would read, to less (at worst 0); returns what is held. What follows from there
  // has the numbers of a fresh sequence.
  int64_t Truncate(KvSequence& sequence, int64_t length);
  // A new sequence that shares the first `length` positions (or fewer, as Truncate) of another.
  KvSequence Fork(const KvSequence& sequence, int64_t length);

  // What Truncate and Fork would hold of `length`.
  int64_t Holds(const KvSequence& sequence, int64_t length) const;
  // What Extend would take.
  size_t BytesToExtend(const KvSequence& sequence, int64_t count) const;
  // What it takes at most to append `count` positions in calls of `chunk`: windows give back
  // between them.
  size_t BytesToRead(const KvSequence& sequence, int64_t count, int64_t chunk) const;
  // Of the pages that a sequence holds; of one that several hold, its share.
  size_t BytesOf(const KvSequence& sequence) const;
  // Some layer forgets: not every length of a sequence can be cut back to.
  bool windowed() const;

  size_t bytes_in_use() const;  // of pages that some sequence holds
  size_t bytes_held() const;    // from the system, free pages included
  size_t limit_bytes() const;   // 0: none

 private:
  friend class KvSequence;
  struct State;
  void Release(KvSequence& sequence);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

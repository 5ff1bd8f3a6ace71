// PrefixCache: sequences that ended, kept for requests that begin alike. Filled and asked by
// Scheduler; the one longest unused goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "engine/kv_cache.h"

namespace lockstep {

// How many ids two texts begin with in common.
int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b);

// The sequence that holds most of the beginning of some ids.
struct PrefixMatch {
  const KvSequence* sequence = nullptr;
  int64_t length = 0;  // that a Fork of it holds
  // Ids in common with any sequence, also with those whose windows have gone past them.
  int64_t common = 0;

  // Is `sequence`, which was made of `held`, a better one? All but the last of `ids` can be shared:
  // the last one gives the logits.
  bool Consider(const KvCache& cache, std::span<const int32_t> ids, const KvSequence& sequence,
                std::span<const int32_t> held);
};

class PrefixCache {
 public:
  // limit_bytes: of pages, a shared one counted by its share.
  PrefixCache(KvCache& cache, size_t limit_bytes) : cache_(cache), limit_(limit_bytes) {}

  void Insert(std::span<const int32_t> ids, KvSequence sequence);
  PrefixMatch Find(std::span<const int32_t> ids);
  bool EvictOldest();  // false: there is none

  size_t size() const { return entries_.size(); }
  size_t bytes() const { return entries_.empty() ? 0 : bytes_; }  // at the last Insert

 private:
  struct Entry {
    std::vector<int32_t> ids;
    KvSequence sequence;
  };
  size_t Bytes() const;

  KvCache& cache_;
  size_t limit_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // the latest used first
};

}  // namespace lockstep

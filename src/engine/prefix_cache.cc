#include "engine/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// A look through all of them stays below a hundredth of a step.
constexpr size_t kMostEntries = 256;

}  // namespace

int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

bool PrefixMatch::Consider(const KvCache& cache, std::span<const int32_t> ids,
                           const KvSequence& candidate, std::span<const int32_t> held) {
  if (ids.empty()) return false;
  const int64_t alike = CommonPrefix(ids.first(ids.size() - 1), held);
  common = std::max(common, alike);
  if (alike <= length) return false;
  const int64_t holds = cache.Holds(candidate, alike);
  if (holds <= length) return false;
  sequence = &candidate;
  length = holds;
  return true;
}

void PrefixCache::Insert(std::span<const int32_t> ids, KvSequence sequence) {
  if (limit_ == 0 || ids.empty() || sequence.length() != static_cast<int64_t>(ids.size())) return;
  // Without windows the longer of two that begin alike serves all that the shorter does.
  const auto covers = [&](std::span<const int32_t> longer, std::span<const int32_t> shorter) {
    return cache_.windowed()
               ? std::ranges::equal(longer, shorter)
               : CommonPrefix(longer, shorter) == static_cast<int64_t>(shorter.size());
  };
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
    if (covers(entry->ids, ids)) {
      entries_.splice(entries_.begin(), entries_, entry);
      return;
    }
  std::erase_if(entries_, [&](const Entry& entry) { return covers(ids, entry.ids); });
  entries_.push_front({{ids.begin(), ids.end()}, std::move(sequence)});
  // Shares change when others end: counted anew, and only here.
  while (bytes_ = Bytes(), entries_.size() > kMostEntries || bytes_ > limit_) EvictOldest();
}

PrefixMatch PrefixCache::Find(std::span<const int32_t> ids) {
  PrefixMatch match;
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
    if (match.Consider(cache_, ids, entry->sequence, entry->ids)) best = entry;
  if (best != entries_.end()) entries_.splice(entries_.begin(), entries_, best);
  return match;
}

bool PrefixCache::EvictOldest() {
  if (entries_.empty()) return false;
  entries_.pop_back();
  return true;
}

size_t PrefixCache::Bytes() const {
  size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += cache_.BytesOf(entry.sequence);
  return bytes;
}

}  // namespace lockstep

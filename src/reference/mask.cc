#include "reference/mask.h"

#include <limits>

#include "reference/ops.h"

namespace lockstep {

bool NeedsMask(const RunSpec& run) {
  return run.softcap_after_mask || run.mask_fill || run.causal_alignment != CausalAlignment::kEnd ||
         run.ring_cache != RingCache::kExact || run.cache_state == CacheState::kKvLost;
}

bool Sees(const RunSpec& run, const std::optional<int64_t>& window, const QueryPlace& query,
          int64_t key) {
  const bool later_call = query.call_first > 0;
  if (later_call && run.cache_state == CacheState::kKvLost && key < query.call_first) return false;
  const int64_t last = run.causal_alignment == CausalAlignment::kStart
                           ? query.position - query.call_first
                           : query.position;
  if (key > last) return false;
  if (key == last || !window) return true;
  if (later_call && query.position >= *window) {  // the ring is full
    if (run.ring_cache == RingCache::kOneShort) return key > last - (*window - 1);
    if (run.ring_cache == RingCache::kStuck) return key < *window - 1;
  }
  return key > last - *window;
}

template <typename T>
void Mask(const RunSpec& run, const std::optional<int64_t>& window,
          const std::optional<double>& softcap, const QueryPlace& query, std::span<T> scores) {
  if (softcap && !run.softcap_after_mask) SoftCap<T>(*softcap, scores);
  const T fill =
      run.mask_fill ? static_cast<T>(*run.mask_fill) : -std::numeric_limits<T>::infinity();
  for (size_t j = 0; j < scores.size(); ++j)
    if (!Sees(run, window, query, static_cast<int64_t>(j))) scores[j] = fill;
  if (softcap && run.softcap_after_mask) SoftCap<T>(*softcap, scores);
}

template void Mask<float>(const RunSpec&, const std::optional<int64_t>&,
                          const std::optional<double>&, const QueryPlace&, std::span<float>);
template void Mask<double>(const RunSpec&, const std::optional<int64_t>&,
                           const std::optional<double>&, const QueryPlace&, std::span<double>);

}  // namespace lockstep

#include "engine/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "engine/page_pool.h"

namespace lockstep {
namespace {

size_t PagesOf(int64_t positions) {
  return static_cast<size_t>((positions + kPageTokens - 1) / kPageTokens);
}

// The first position that the layer's next position, `length`, reads.
int64_t FirstRead(const KvLayer& layer, int64_t length) {
  return layer.window ? std::max<int64_t>(0, length - *layer.window + 1) : 0;
}
// The first page that a sequence of `length` keeps.
size_t FirstKept(const KvLayer& layer, int64_t length) {
  return static_cast<size_t>(std::max<int64_t>(0, FirstRead(layer, length) - kWindowSlack) /
                             kPageTokens);
}

}  // namespace

struct KvCache::State {
  std::vector<KvLayer> layers;
  std::vector<uint32_t> pool_of;  // per layer
  std::vector<PagePool> pools;    // one per size of page
  std::vector<size_t> wanted;     // per pool, pages of an Extend
  size_t limit = 0, in_use = 0;

  KvPage* Take(size_t layer, bool zeroed) {
    PagePool& pool = pools[pool_of[layer]];
    in_use += pool.page_bytes();
    return pool.Take(zeroed);
  }
  void Drop(KvSequence::Slot& slot) {
    if (slot.page == nullptr) return;
    if (--slot.page->references == 0) {
      PagePool& pool = pools[slot.page->pool];
      in_use -= pool.page_bytes();
      pool.Return(slot.page);
    }
    slot = {};
  }
  // Must Extend copy this layer's last page?
  static bool SharesLastPage(const KvSequence& sequence, size_t layer) {
    const auto& table = sequence.layers_[layer];
    const size_t page = static_cast<size_t>(sequence.length_ / kPageTokens);
    return sequence.length_ % kPageTokens != 0 && page < table.pages.size() &&
           table.pages[page].page->references > 1;
  }
};

KvSequence::KvSequence(KvSequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      length_(std::exchange(other.length_, 0)),
      layers_(std::move(other.layers_)) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this == &other) return *this;
  if (cache_ != nullptr) cache_->Release(*this);
  cache_ = std::exchange(other.cache_, nullptr);
  length_ = std::exchange(other.length_, 0);
  layers_ = std::move(other.layers_);
  return *this;
}

KvSequence::~KvSequence() {
  if (cache_ != nullptr) cache_->Release(*this);
}

KvCache::KvCache(std::vector<KvLayer> layers, size_t limit_bytes)
    : state_(std::make_unique<State>()) {
  state_->limit = limit_bytes;
  for (const KvLayer& layer : layers) {
    LS_CHECK(!layer.window || *layer.window >= 1, "{}", *layer.window);
    LS_CHECK(layer.page_bytes <= std::numeric_limits<size_t>::max() - 64);
    const size_t bytes = (layer.page_bytes + 63) / 64 * 64;
    auto& pools = state_->pools;
    auto pool = std::find_if(pools.begin(), pools.end(),
                             [&](const PagePool& p) { return p.page_bytes() == bytes; });
    if (pool == pools.end()) {
      pools.emplace_back(bytes, static_cast<uint32_t>(pools.size()));
      pool = pools.end() - 1;
    }
    state_->pool_of.push_back(static_cast<uint32_t>(pool - pools.begin()));
  }
  state_->wanted.resize(state_->pools.size());
  state_->layers = std::move(layers);
}

KvCache::~KvCache() {
  LS_CHECK(state_->in_use == 0, "{} bytes are still held by a sequence", state_->in_use);
}

KvSequence KvCache::NewSequence() {
  KvSequence sequence;
  sequence.cache_ = this;
  sequence.layers_.resize(state_->layers.size());
  return sequence;
}

Status KvCache::Extend(KvSequence& sequence, int64_t count) {
  LS_CHECK(sequence.cache_ == this && count >= 0, "{}", count);
  State& state = *state_;
  const size_t need = PagesOf(sequence.length_ + count);
  // First all that can fail, then all that changes the sequence.
  const size_t bytes = BytesToExtend(sequence, count);
  const size_t left = state.limit == 0 ? std::numeric_limits<size_t>::max()
                                       : state.limit - std::min(state.limit, state.in_use);
  if (bytes > left)
    return UsageError(
        "{} more positions need {} bytes of keys and values, but {} of the limit of {} bytes are "
        "in use; end other sequences, shorten the text or raise the limit",
        count, bytes, state.in_use, state.limit);
  bool memory = true;
  std::fill(state.wanted.begin(), state.wanted.end(), 0);
  for (size_t l = 0; l < state.layers.size(); ++l) {
    if (state.layers[l].page_bytes == 0) continue;
    const size_t have = sequence.layers_[l].pages.size();
    state.wanted[state.pool_of[l]] +=
        (need > have ? need - have : 0) + (count > 0 && State::SharesLastPage(sequence, l) ? 1 : 0);
  }
  for (size_t p = 0; p < state.pools.size() && memory; ++p)
    memory = state.pools[p].Reserve(state.wanted[p], left);
  if (memory) {
    try {
      // From 64 pages on tables double: a decode step does not allocate.
      for (auto& table : sequence.layers_)
        if (need > table.pages.capacity())
          table.pages.reserve(std::max({need, 2 * table.pages.capacity(), size_t{64}}));
    } catch (const std::bad_alloc&) {
      memory = false;
    }
  }
  if (!memory)
    return UsageError(
        "{} more positions need {} bytes of keys and values, but the system has no memory left "
        "beside the {} bytes in use; end other sequences, shorten the text or store keys and "
        "values in fewer bits",
        count, bytes, state.in_use);

  for (size_t l = 0; l < state.layers.size(); ++l) {
    if (state.layers[l].page_bytes == 0) continue;
    auto& pages = sequence.layers_[l].pages;
    if (count > 0 && State::SharesLastPage(sequence, l)) {
      auto& slot = pages[static_cast<size_t>(sequence.length_ / kPageTokens)];
      KvPage* copy = state.Take(l, false);
      std::memcpy(copy->data, slot.data, state.pools[copy->pool].page_bytes());
      state.Drop(slot);
      slot = {copy->data, copy};
    }
    while (pages.size() < need) {
      KvPage* page = state.Take(l, true);
      pages.push_back({page->data, page});
    }
  }
  return {};
}

void KvCache::Commit(KvSequence& sequence, int64_t count) {
  LS_CHECK(sequence.cache_ == this && count >= 0, "{}", count);
  sequence.length_ += count;
  for (size_t l = 0; l < state_->layers.size(); ++l) {
    if (state_->layers[l].page_bytes == 0) continue;
    auto& table = sequence.layers_[l];
    LS_CHECK(PagesOf(sequence.length_) <= table.pages.size(), "{} positions in {} pages",
             sequence.length_, table.pages.size());
    const size_t first = FirstKept(state_->layers[l], sequence.length_);
    for (; table.first < first; ++table.first) state_->Drop(table.pages[table.first]);
  }
}

int64_t KvCache::Holds(const KvSequence& sequence, int64_t length) const {
  LS_CHECK(length >= 0 && length <= sequence.length_, "{} of {}", length, sequence.length_);
  // A shorter sequence would read even earlier positions: where pages are gone, all are.
  for (size_t l = 0; l < state_->layers.size(); ++l)
    if (static_cast<int64_t>(sequence.layers_[l].first) * kPageTokens >
        FirstRead(state_->layers[l], length))
      return 0;
  return length;
}

int64_t KvCache::Truncate(KvSequence& sequence, int64_t length) {
  LS_CHECK(sequence.cache_ == this);
  length = Holds(sequence, length);
  for (auto& table : sequence.layers_) {
    while (table.pages.size() > PagesOf(length)) {
      state_->Drop(table.pages.back());
      table.pages.pop_back();
    }
    if (length == 0) table.first = 0;
  }
  sequence.length_ = length;
  return length;
}

KvSequence KvCache::Fork(const KvSequence& sequence, int64_t length) {
  LS_CHECK(sequence.cache_ == this);
  length = Holds(sequence, length);
  KvSequence fork = NewSequence();
  for (size_t l = 0; l < state_->layers.size() && length > 0; ++l) {
    if (state_->layers[l].page_bytes == 0) continue;
    const auto& from = sequence.layers_[l];
    auto& to = fork.layers_[l];
    to.pages.resize(PagesOf(length));
    to.first = std::max(from.first, FirstKept(state_->layers[l], length));
  }
  // Nothing below allocates: references are counted all or not at all.
  for (size_t l = 0; l < state_->layers.size() && length > 0; ++l) {
    auto& to = fork.layers_[l];
    for (size_t p = to.first; p < to.pages.size(); ++p) {
      to.pages[p] = sequence.layers_[l].pages[p];
      ++to.pages[p].page->references;
    }
  }
  fork.length_ = length;
  return fork;
}

size_t KvCache::BytesToExtend(const KvSequence& sequence, int64_t count) const {
  return BytesToRead(sequence, count, count);
}

size_t KvCache::BytesToRead(const KvSequence& sequence, int64_t count, int64_t chunk) const {
  const size_t need = PagesOf(sequence.length_ + count);
  size_t bytes = 0;
  for (size_t l = 0; l < state_->layers.size(); ++l) {
    const KvLayer& layer = state_->layers[l];
    if (layer.page_bytes == 0) continue;
    const auto& table = sequence.layers_[l];
    size_t pages = need > table.pages.size() ? need - table.pages.size() : 0;
    if (layer.window && chunk < count) {
      // Both ends of what is held may lie within a page.
      const size_t most = PagesOf(*layer.window + kWindowSlack + chunk) + 1;
      const size_t held = table.pages.size() - table.first;
      pages = std::min(pages, most > held ? most - held : 0);
    }
    if (count > 0 && State::SharesLastPage(sequence, l)) ++pages;
    size_t layer_bytes = 0;
    if (__builtin_mul_overflow(pages, state_->pools[state_->pool_of[l]].page_bytes(),
                               &layer_bytes) ||
        __builtin_add_overflow(bytes, layer_bytes, &bytes))
      return std::numeric_limits<size_t>::max();
  }
  return bytes;
}

size_t KvCache::BytesOf(const KvSequence& sequence) const {
  size_t bytes = 0;
  for (size_t l = 0; l < sequence.layers_.size(); ++l) {
    const auto& table = sequence.layers_[l];
    for (size_t p = table.first; p < table.pages.size(); ++p)
      bytes += state_->pools[state_->pool_of[l]].page_bytes() / table.pages[p].page->references;
  }
  return bytes;
}

void KvCache::Release(KvSequence& sequence) {
  for (auto& table : sequence.layers_)
    for (auto& slot : table.pages) state_->Drop(slot);
  sequence.layers_.clear();
  sequence.length_ = 0;
}

bool KvCache::windowed() const {
  return std::any_of(state_->layers.begin(), state_->layers.end(),
                     [](const KvLayer& layer) { return layer.page_bytes > 0 && layer.window; });
}

size_t KvCache::bytes_in_use() const { return state_->in_use; }
size_t KvCache::bytes_held() const {
  size_t bytes = 0;
  for (const PagePool& pool : state_->pools) bytes += pool.bytes_held();
  return bytes;
}
size_t KvCache::limit_bytes() const { return state_->limit; }

}  // namespace lockstep

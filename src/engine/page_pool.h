// PagePool: pages of one size, from slabs that are asked of the system as they are needed and given
// back at the end. A page is zero when it is taken, unless its taker asks for it as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

struct KvPage {
  std::byte* data = nullptr;
  KvPage* next_free = nullptr;
  uint32_t references = 0;
  uint32_t pool = 0;
  bool used = false;  // before: not zero any more
};

struct Unmap {
  size_t bytes = 0;
  void operator()(std::byte* data) const;
};

class PagePool {
 public:
  PagePool(size_t page_bytes, uint32_t index);  // index: what its pages bear as `pool`
  PagePool(PagePool&&) noexcept = default;
  ~PagePool();

  // At least `count` pages can be taken afterwards; false: the system has no memory, and nothing
  // changed but that some may be free now. `most`: slabs of more bytes than that are no use.
  bool Reserve(size_t count, size_t most);
  // A page with one reference; zeroed = false: with whatever its last user left in it, for who
  // writes all of it. There must be one (Reserve).
  KvPage* Take(bool zeroed = true);
  void Return(KvPage* page);  // its last reference is gone

  size_t page_bytes() const { return page_bytes_; }
  size_t free_pages() const { return free_pages_; }
  size_t bytes_held() const { return bytes_held_; }

 private:
  struct Slab {
    std::unique_ptr<std::byte, Unmap> data;
    std::unique_ptr<KvPage[]> pages;
  };
  bool AddSlab(size_t pages);

  size_t page_bytes_;  // rounded up to 64
  uint32_t index_;
  std::vector<Slab> slabs_;
  KvPage* free_ = nullptr;
  size_t free_pages_ = 0, bytes_held_ = 0;
};

}  // namespace lockstep

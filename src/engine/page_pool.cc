#include "engine/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/memory.h"

namespace lockstep {
namespace {

constexpr size_t kFirstSlab = size_t{2} << 20, kLargestSlab = size_t{64} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void Unmap::operator()(std::byte* data) const { munmap(data, bytes); }

PagePool::PagePool(size_t page_bytes, uint32_t index)
    : page_bytes_((page_bytes + 63) / 64 * 64), index_(index) {}
PagePool::~PagePool() = default;

bool PagePool::AddSlab(size_t pages) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(pages, page_bytes_, &bytes)) return false;
  if (bytes > AvailableMemory()) return false;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  Slab slab;
  slab.data = {static_cast<std::byte*>(mapped), Unmap{bytes}};
  // Few large page faults instead of many small ones while a prompt is read; the system may refuse.
  if (bytes >= 2 * kHugePage) madvise(mapped, bytes, MADV_HUGEPAGE);
  slab.pages.reset(new (std::nothrow) KvPage[pages]);
  if (!slab.pages) return false;
  try {
    slabs_.reserve(slabs_.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  // The free list begins with the lowest address: pages that are taken together lie together.
  for (size_t i = pages; i-- > 0;) {
    KvPage& page = slab.pages[i];
    page.data = slab.data.get() + i * page_bytes_;
    page.pool = index_;
    page.next_free = free_;
    free_ = &page;
  }
  free_pages_ += pages;
  bytes_held_ += bytes;
  slabs_.push_back(std::move(slab));
  return true;
}

bool PagePool::Reserve(size_t count, size_t most) {
  if (count <= free_pages_) return true;
  const size_t missing = count - free_pages_;
  // Slabs double, so that there are few of them; the last ones under a limit are no larger than it
  // allows.
  const size_t wish =
      std::min({std::max(kFirstSlab, bytes_held_), kLargestSlab, most}) / page_bytes_;
  return AddSlab(std::max(missing, wish)) || (wish > missing && AddSlab(missing));
}

KvPage* PagePool::Take(bool zeroed) {
  LS_CHECK(free_ != nullptr);
  KvPage* page = free_;
  free_ = page->next_free;
  --free_pages_;
  // Kernels multiply what lies beyond a sequence's length by exact zeros: another sequence's
  // infinities there would be this one's NaNs.
  if (zeroed && page->used) std::memset(page->data, 0, page_bytes_);
  page->used = true;
  page->references = 1;
  page->next_free = nullptr;
  return page;
}

void PagePool::Return(KvPage* page) {
  page->next_free = free_;
  free_ = page;
  ++free_pages_;
}

}  // namespace lockstep

#include "engine/buffer.h"

#include <sys/mman.h>

#include "base/memory.h"

namespace lockstep {

std::shared_ptr<std::byte> AllocateZeroed(size_t bytes) {
  constexpr size_t kLargePage = size_t{2} << 20, kLarge = size_t{64} << 20;
  const auto rounded = [](size_t n) { return (n + kLargePage - 1) / kLargePage * kLargePage; };
  if (bytes > SIZE_MAX / 2 || (bytes > kLarge && bytes > AvailableMemory())) throw std::bad_alloc();
  const size_t reserved = rounded(bytes) + kLargePage;
  void* map = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  auto* start = reinterpret_cast<std::byte*>(rounded(reinterpret_cast<size_t>(map)));
#if defined(MADV_HUGEPAGE)
  madvise(start, rounded(bytes), MADV_HUGEPAGE);  // a wish: it may fail
#endif
  return {start, [map, reserved](std::byte*) { munmap(map, reserved); }};
}

}  // namespace lockstep

// Replaces operator new for the whole test program, to know what hostile files make it ask for.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "formats/test_allocations.h"

namespace {
std::atomic<size_t> largest_allocation = 0;

void* Allocate(size_t size) noexcept {
  size_t largest = largest_allocation.load();
  while (size > largest && !largest_allocation.compare_exchange_weak(largest, size)) {
  }
  return std::malloc(size == 0 ? 1 : size);
}
}  // namespace

void* operator new(size_t size) {
  if (void* p = Allocate(size)) return p;
  throw std::bad_alloc();
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace lockstep {

void ForgetAllocations() { largest_allocation = 0; }
size_t LargestAllocation() { return largest_allocation; }

TEST(Allocations, TheLargestIsRemembered) {
  ForgetAllocations();
  const std::vector<char> large(12'345), small(10);
  EXPECT_EQ(LargestAllocation(), large.size());
}

}  // namespace lockstep

// Buffer: grow-only memory for kernels, 64-byte aligned and zero when new. They may read a little
// past the end.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/memory.h"

namespace lockstep {

template <typename T>
class Buffer {
 public:
  // Room for n elements; what was there is lost when it grows.
  void Reserve(int64_t n) {
    if (n <= size_) return;
    constexpr size_t kSlack = 256, kLarge = size_t{64} << 20;
    if (static_cast<size_t>(n) > (SIZE_MAX - kLarge) / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = (static_cast<size_t>(n) * sizeof(T) + kSlack + 63) / 64 * 64;
    memory_.reset();
    size_ = 0;
    if (bytes > kLarge && bytes > AvailableMemory()) throw std::bad_alloc();
    memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (memory_ == nullptr) throw std::bad_alloc();
    std::memset(static_cast<void*>(memory_.get()), 0, bytes);
    size_ = n;
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t size_ = 0;
};

}  // namespace lockstep

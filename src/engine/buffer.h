// Memory for kernels: 64-byte aligned, zero when new, and readable a little past its end; in large
// pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace lockstep {

// Throws std::bad_alloc also where the system would promise memory that it has not.
std::shared_ptr<std::byte> AllocateZeroed(size_t bytes);

// Where an array lies in a block that somebody else holds.
template <typename T>
class Array {
 public:
  T* data() { return at_; }
  const T* data() const { return at_; }

 private:
  friend class Layout;
  T* at_ = nullptr;
};

// Lays arrays out in one block: walked through twice, first to count (no block), then to place.
class Layout {
 public:
  explicit Layout(std::byte* block = nullptr) : block_(block) {}
  template <typename T>
  void Put(Array<T>& array, int64_t n) {
    constexpr size_t kSlack = 256, kLine = 64, kMost = SIZE_MAX / 4;
    if (static_cast<size_t>(n) > kMost / sizeof(T) || size_ > kMost) throw std::bad_alloc();
    if (block_ != nullptr) array.at_ = reinterpret_cast<T*>(block_ + size_);
    size_ += (static_cast<size_t>(n) * sizeof(T) + kSlack + kLine - 1) / kLine * kLine;
  }
  size_t size() const { return size_; }

 private:
  std::byte* block_;
  size_t size_ = 0;
};

// One array with a block of its own; it only grows, and what was there is lost when it does.
template <typename T>
class Buffer {
 public:
  void Reserve(int64_t n) {
    if (n <= size_) return;
    size_ = 0;
    block_.reset();
    Layout counted;
    counted.Put(array_, n);
    block_ = AllocateZeroed(counted.size());
    Layout(block_.get()).Put(array_, n);
    size_ = n;
  }
  T* data() { return array_.data(); }

 private:
  std::shared_ptr<std::byte> block_;
  Array<T> array_;
  int64_t size_ = 0;
};

}  // namespace lockstep

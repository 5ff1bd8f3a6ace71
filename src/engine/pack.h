// Pack: weights from the checkpoint's layout into the one that the kernels read (kernels/packed.h).
// Lossless: a format whose codes and scales a packed kind can hold keeps them; all others become
// the floats that they stand for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/packed.h"
#include "model/weight_view.h"

namespace lockstep {

// Which kind holds `view` without loss.
PackedKind ChoosePackedKind(const WeightView& view);

// 64-byte aligned memory, zeroed.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t size);
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Several matrices with the same inputs, one above the other (q, k and v; gate and up): one pass
// over the activations serves them all. Each view starts on a tile of its own.
struct PackedGroup {
  std::vector<PackedMatrix> matrices;  // views of `bytes`
  AlignedBytes bytes;
};
PackedGroup Pack(std::span<const WeightView* const> views, ThreadPool& pool);

}  // namespace lockstep

// Packing: weights from the checkpoint's layout into the one that the kernels read
// (kernels/packed.h). Lossless: a format whose codes and scales a packed kind can hold keeps them;
// all others become the floats that they stand for.
//
// A plan first adds every group of matrices, which fixes where each will lie; then one pass packs
// them all (or a file that an earlier start wrote is taken: pack_cache.h), and Place points the
// groups at the bytes.
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

// Read-only bytes, 64-byte aligned, kept alive by whoever holds a copy: own memory or a mapped
// file.
struct PackedBytes {
  std::shared_ptr<const std::byte> data;
  size_t size = 0;
};

// Several matrices with the same inputs, one above the other (q, k and v; gate and up): one pass
// over the activations serves them all. Each starts on a tile of its own.
struct PackedGroup {
  std::vector<PackedMatrix> matrices;
  std::vector<const WeightView*> views;  // what each was packed from
  size_t offset = 0;                     // of the first in the packed bytes
  size_t size = 0;
};

class Packing {
 public:
  // The views must outlive the Packing. The matrices have no data before Place.
  PackedGroup Add(std::span<const WeightView* const> views);

  // Bytes of all groups, and what kernels may read beyond the last (they fetch ahead).
  size_t size() const { return size_ + kSlack; }
  PackedBytes Pack(ThreadPool& pool) const;
  static void Place(const PackedBytes& bytes, PackedGroup& group);

  struct Entry {
    const WeightView* view;
    PackedMatrix matrix;
    size_t offset;
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  static constexpr size_t kSlack = 4096;
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace lockstep

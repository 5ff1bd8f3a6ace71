// How the writers of checkpoints take tensors that are too large to hold: by a directory first, and
// then row by row from whoever makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "formats/tensor_info.h"

namespace lockstep {

// One tensor of a file that is about to be written.
struct StreamedTensor {
  std::string name;
  const TensorType* type = nullptr;
  std::vector<int64_t> shape;  // outermost first

  // A row is what the last dimension spans; a tensor without dimensions is one row of one element.
  int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
  int64_t row_bytes() const { return row_elements() / type->block_elements * type->block_bytes; }
};

// Rows [first, first + count) of tensors[tensor] as its type stores them, one after the other.
using FillRows = std::function<Status(size_t tensor, int64_t first, int64_t count, std::byte* out)>;
// Called now and then with the bytes written so far and in all; false stops (kInterrupted).
using WriteProgress = std::function<bool(uint64_t done, uint64_t total)>;

// Appends one tensor in blocks of rows: never more than some megabytes (or one row) at a time.
// `done` and `total` are of all tensors.
Status StreamTensor(AtomicFile& file, const StreamedTensor& tensor, size_t index,
                    const FillRows& fill, const WriteProgress& progress, uint64_t& done,
                    uint64_t total);

}  // namespace lockstep

#include "formats/tensor_stream.h"

#include <algorithm>

namespace lockstep {
namespace {

// Large enough to keep all threads busy between two writes, small beside the allowance of memory.
constexpr int64_t kBlockBytes = int64_t{8} << 20;

}  // namespace

int64_t StreamedTensor::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

Status StreamTensor(AtomicFile& file, const StreamedTensor& tensor, size_t index,
                    const FillRows& fill, const WriteProgress& progress, uint64_t& done,
                    uint64_t total) {
  const int64_t rows = tensor.rows(), row_bytes = tensor.row_bytes();
  if (rows == 0 || row_bytes == 0) return {};
  const int64_t step = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, rows);
  std::vector<std::byte> block(static_cast<size_t>(step * row_bytes));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    LS_RETURN_IF_ERROR(fill(index, first, count, block.data()));
    LS_RETURN_IF_ERROR(file.Write(std::span(block).first(static_cast<size_t>(count * row_bytes))));
    done += static_cast<uint64_t>(count * row_bytes);
    if (progress && !progress(done, total)) return Fail(ErrorCode::kInterrupted, "interrupted");
  }
  return {};
}

}  // namespace lockstep
